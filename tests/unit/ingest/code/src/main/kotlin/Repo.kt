package shop.data

import shop.model.Item
import shop.util.*
import java.util.UUID as Id

/** How many. */
const val MAX = 10

/**
 * A repository. Of items.
 */
@Singleton
class Repo<T : Item>(private val db: Database) : BaseRepo<T>(db), Closeable {
    /** Finds one. */
    @Throws(IOException::class)
    suspend fun find(id: Id): T? {
        check(id)
        return db.query(id)
    }

    private fun check(id: Id) = require(id != null)

    companion object {
        fun create(): Repo<Item> = Repo(Database())
    }
}

data class Row(val a: Int)
fun interface Source {
    fun read(): Int
}
object Registry { fun all() = listOf<Row>() }
enum class Color { RED, GREEN }
typealias Rows = List<Row>
fun String.shout(): String = uppercase()
