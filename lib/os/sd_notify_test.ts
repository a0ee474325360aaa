import { assertEquals } from "@std/assert";
import { ServiceNotifier } from "./sd_notify.ts";

function processOf(env: Readonly<Record<string, string>>) {
  return { env: (name: string) => env[name], pid: 7 };
}

function fail(error: unknown): never {
  throw error;
}

async function withManager(
  run: (
    manager: { path: string; folder: string; receive: () => Promise<string> },
  ) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/manager.sock`;
  const socket = Deno.listenDatagram({ transport: "unixpacket", path });
  try {
    await run({
      path,
      folder,
      receive: async () => new TextDecoder().decode((await socket.receive())[0]),
    });
  } finally {
    socket.close();
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("ServiceNotifier sends systemd's messages and removes its socket", async () => {
  await withManager(async ({ path, folder, receive }) => {
    {
      using notifier = new ServiceNotifier(
        processOf({ NOTIFY_SOCKET: path, WATCHDOG_USEC: "60000000", WATCHDOG_PID: "7" }),
        folder,
        fail,
      );
      assertEquals(notifier.watchdogMs, 30_000);
      await notifier.send("READY=1");
      await notifier.send("STATUS=serving");
      await notifier.send("WATCHDOG=1");
      await notifier.send("STOPPING=1");
      assertEquals([await receive(), await receive(), await receive(), await receive()], [
        "READY=1",
        "STATUS=serving",
        "WATCHDOG=1",
        "STOPPING=1",
      ]);
    }
    const left = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name);
    assertEquals(left, ["manager.sock"]);
  });
});

Deno.test("ServiceNotifier sends messages in order that are given at once", async () => {
  await withManager(async ({ path, folder, receive }) => {
    using notifier = new ServiceNotifier(processOf({ NOTIFY_SOCKET: path }), folder, fail);
    const sent = [
      notifier.send("WATCHDOG=1"),
      notifier.send("READY=1"),
      notifier.send("STATUS=serving"),
    ];
    await Promise.all(sent);
    assertEquals([await receive(), await receive(), await receive()], [
      "WATCHDOG=1",
      "READY=1",
      "STATUS=serving",
    ]);
  });
});

Deno.test("ServiceNotifier leaves no name in the folder that another program could take or remove", async () => {
  await withManager(async ({ path, folder, receive }) => {
    using notifier = new ServiceNotifier(processOf({ NOTIFY_SOCKET: path }), folder, fail);
    using sameProcessId = new ServiceNotifier(processOf({ NOTIFY_SOCKET: path }), folder, fail);
    for (const text of ["one", "two"]) {
      await notifier.send(`STATUS=${text}`);
      await sameProcessId.send(`STATUS=${text}`);
      assertEquals([await receive(), await receive()], [`STATUS=${text}`, `STATUS=${text}`]);
      const left = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name);
      assertEquals(left, ["manager.sock"]);
    }
  });
});

Deno.test("ServiceNotifier sends nothing without systemd", async () => {
  using notifier = new ServiceNotifier(
    processOf({ WATCHDOG_USEC: "60000000" }),
    "/nonexistent",
    fail,
  );
  await notifier.send("READY=1");
  assertEquals(notifier.watchdogMs, undefined);
});

Deno.test("ServiceNotifier reports a removed socket once and continues", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const errors: unknown[] = [];
    using notifier = new ServiceNotifier(
      processOf({ NOTIFY_SOCKET: `${folder}/gone.sock` }),
      folder,
      (error) => errors.push(error),
    );
    await notifier.send("READY=1");
    await notifier.send("WATCHDOG=1");
    assertEquals(errors.length, 1);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("ServiceNotifier feeds a watchdog in half of its time, and not that of another process", () => {
  const periodOf = (env: Readonly<Record<string, string>>) => {
    using notifier = new ServiceNotifier(processOf({ NOTIFY_SOCKET: "@x", ...env }), "/", fail);
    return notifier.watchdogMs;
  };
  assertEquals(periodOf({ WATCHDOG_USEC: "60000000" }), 30_000);
  assertEquals(periodOf({ WATCHDOG_USEC: "60000000", WATCHDOG_PID: "8" }), undefined);
  assertEquals(periodOf({ WATCHDOG_USEC: "60000000", WATCHDOG_PID: "" }), 30_000);
  assertEquals(periodOf({ WATCHDOG_USEC: "soon" }), undefined);
  assertEquals(periodOf({}), undefined);
});
