using System;
using Json = System.Text.Json;

namespace Shop.Orders;

/// <summary>
/// Serves orders. Keeps none.
/// </summary>
[Service("orders")]
public sealed class OrderService : ServiceBase<Order>, IDisposable
{
    private const int Max = 10;
    private readonly IStore _store;

    public OrderService(IStore store) { _store = store; }

    /// <summary>The count.</summary>
    public int Count { get; set; }

    [HttpGet]
    public async Task<Order> GetAsync(string id)
    {
        Validate(id);
        var x = new Order(id);
        return await _store.FindAsync<Order>(id);
    }

    private static void Validate(string id) => Guard.NotNull(id);

    public event EventHandler Changed;
    public static bool operator ==(OrderService a, OrderService b) => true;
}

public interface IStore { Task<T> FindAsync<T>(string id); }
public record Order(string Id);
public enum State { Open, Closed }
public delegate void Changed(Order order);
