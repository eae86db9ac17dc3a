using System.Diagnostics;
using System.Reflection;
using System.Text.RegularExpressions;

namespace Busbar;

/// <summary>Marks a scenario of scenarios.txt: a static method that takes what a scenario gets.</summary>
[AttributeUsage(AttributeTargets.Method)]
public sealed class ScenarioAttribute(string id) : Attribute
{
    public string Id { get; } = id;
}

/// <summary>The library has nothing like it.</summary>
public sealed class Skip(string why) : Exception(why);

/// <summary>Runs the scenarios of a library for .NET, several at once: what waits for a lock is cheap.</summary>
public static class Runner
{
    private const int AtOnce = 10;

    /// <summary>Bounds a scenario: the seconds of BUSBAR_LIMIT, or 120.</summary>
    public static readonly TimeSpan Limit =
        TimeSpan.FromSeconds(int.Parse(Environment.GetEnvironmentVariable("BUSBAR_LIMIT") ?? "120"));

    private static readonly TimeSpan CloseLimit = TimeSpan.FromSeconds(20);
    private static readonly Lock Saying = new();

    /// <summary>
    /// Runs every scenario that BUSBAR_ONLY names, or all, without those of BUSBAR_ABSENT, and prints one line for
    /// each: scenario, id, pass or fail or skip, milliseconds, text; separated by tabs. With the argument --list it
    /// prints the ids and ends. <paramref name="scene"/> makes what a scenario gets from its id and number.
    /// </summary>
    public static async Task RunAsync<T>(string[] args, Type library, Func<string, int, T> scene) where T : Scene
    {
        var all = Scenarios<T>();
        if (args is ["--list", ..])
        {
            foreach (var (id, _) in all)
            {
                Console.WriteLine(id);
            }
            return;
        }
        var only = Ids("BUSBAR_ONLY");
        var absent = Ids("BUSBAR_ABSENT");
        all.RemoveAll(s => absent.Contains(s.Id) || only.Length > 0 && !only.Contains(s.Id));
        Say("sdk", library.Assembly.GetName().Name, Version(library));
        using var slots = new SemaphoreSlim(AtOnce);
        await Task.WhenAll(all.Select(async (s, i) =>
        {
            await slots.WaitAsync();
            try
            {
                await Task.Run(() => OneAsync(s.Id, s.Run, scene(s.Id, i)));
            }
            finally
            {
                slots.Release();
            }
        }));
        Say("end", all.Count);
        Environment.Exit(0); // whatever threads a library or a failed scenario keeps
    }

    private static List<(string Id, Func<T, Task> Run)> Scenarios<T>() =>
        [.. from type in typeof(T).Assembly.GetTypes()
            from method in type.GetMethods(BindingFlags.Static | BindingFlags.Public)
            let scenario = method.GetCustomAttribute<ScenarioAttribute>()
            where scenario is not null
            select (scenario.Id, method.CreateDelegate<Func<T, Task>>())];

    private static async Task OneAsync<T>(string id, Func<T, Task> run, T scene) where T : Scene
    {
        var watch = Stopwatch.StartNew();
        var (state, text) = ("pass", "");
        try
        {
            await run(scene).WaitAsync(Limit);
        }
        catch (Skip skip)
        {
            (state, text) = ("skip", skip.Message);
        }
        catch (Exception e) // whatever it is, it is told
        {
            (state, text) = ("fail", $"{e.GetType().Name}: {e.Message} at {Where(e)}");
        }
        try
        {
            await scene.CloseAsync().WaitAsync(CloseLimit);
        }
        catch (TimeoutException)
        {
            // what is left open ends with the process
        }
        Say("scenario", id, state, watch.ElapsedMilliseconds, text);
    }

    /// <summary>The lines of the scenario that led to the failure.</summary>
    private static string Where(Exception e) =>
        string.Join(' ', from frame in new StackTrace(e, true).GetFrames()
                         let file = frame.GetFileName()
                         where file is not null
                         select $"{Path.GetFileName(file)}:{frame.GetFileLineNumber()}");

    private static string[] Ids(string variable) =>
        (Environment.GetEnvironmentVariable(variable) ?? "").Split((char[]?)null, StringSplitOptions.RemoveEmptyEntries);

    private static string Version(Type library)
    {
        var told = library.Assembly.GetCustomAttribute<AssemblyInformationalVersionAttribute>()?.InformationalVersion;
        return told is null ? "unknown" : told.Split('+')[0]; // the commit is behind the plus sign
    }

    private static void Say(params object?[] fields)
    {
        var line = string.Join('\t', fields.Select(f => Regex.Replace($"{f}", @"\s+", " ").Trim()));
        lock (Saying)
        {
            Console.WriteLine(line);
            Console.Out.Flush();
        }
    }
}
