package shop.cart;

import java.util.List;
import static shop.util.Money.sum;
import shop.model.*;

/**
 * A cart. Holds lines.
 */
@Entity(name = "cart")
public class Cart extends Base<Line> implements Iterable<Line>, Closeable {
    /** Limit. */
    public static final int MAX = 10;
    private List<Line> lines;

    public Cart() { this.lines = new ArrayList<>(); }

    /** Adds a line. @param line it */
    @Override
    public <T extends Line> void add(T line) throws CartException {
        check(line);
        lines.add(line);
        sum(lines);
    }

    private void check(Line line) {}

    static class Builder {
        Cart build() { return new Cart(); }
    }
    enum Kind { A, B }
    interface Visitor { void visit(Line line); }
    record Pair(int a, int b) {}
}
