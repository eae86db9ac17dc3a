using System.Diagnostics;

namespace Busbar;

/// <summary>What every scenario gets: names of its own, what it closes at its end, and words for what it expects.</summary>
public abstract class Scene(string library, string id, int index)
{
    /// <summary>Bounds the wait for what must come.</summary>
    public static readonly TimeSpan Soon = TimeSpan.FromSeconds(20);

    /// <summary>How long a scenario listens for what must not come.</summary>
    public static readonly TimeSpan Quiet = TimeSpan.FromMilliseconds(1500);

    private readonly string prefix = $"{library}-{id}-{Guid.NewGuid().ToString("N")[..8]}";
    private readonly Stack<Func<Task>> closers = new();
    private int made;

    /// <summary>Line i of a variable of the environment that has one for each node; the scenarios take turns.</summary>
    protected string Line(string variable, int i)
    {
        var all = Environment.GetEnvironmentVariable(variable)!.Split('\n');
        return all[(index + i) % all.Length];
    }

    public void Later(Func<Task> close)
    {
        lock (closers)
        {
            closers.Push(close);
        }
    }

    public string Name(string kind = "q") => $"{prefix}-{kind}{Interlocked.Increment(ref made)}";

    public async Task CloseAsync()
    {
        while (closers.TryPop(out var close))
        {
            try
            {
                await close();
            }
            catch (Exception)
            {
                // the scenario has closed it itself, or has failed already
            }
        }
    }

    public static void Check(bool ok, string text)
    {
        if (!ok)
        {
            throw new InvalidOperationException(text);
        }
    }

    public static void Equal<T>(T got, T want, string what) =>
        Check(EqualityComparer<T>.Default.Equals(got, want), $"{what} {got}, want {want}");

    public static void EqualAll<T>(IEnumerable<T> got, IEnumerable<T> want, string what)
    {
        var (all, wanted) = (got.ToList(), want.ToList());
        Check(all.SequenceEqual(wanted), $"{what} [{string.Join(", ", all)}], want [{string.Join(", ", wanted)}]");
    }

    public static async Task UntilAsync(string what, Func<Task<bool>> check)
    {
        for (var watch = Stopwatch.StartNew(); !await check(); await Task.Delay(50))
        {
            Check(watch.Elapsed < Soon, $"waited in vain: {what}");
        }
    }

    public static Task UntilAsync(string what, Func<bool> check) => UntilAsync(what, () => Task.FromResult(check()));

    /// <summary>Expects a failure of that kind.</summary>
    public static async Task<T> FailsAsync<T>(Func<Task> call) where T : Exception
    {
        try
        {
            await call();
        }
        catch (T expected)
        {
            return expected;
        }
        throw new InvalidOperationException($"succeeded, want {typeof(T).Name}");
    }
}
