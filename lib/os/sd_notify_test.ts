import { assertEquals } from "@std/assert";
import { ServiceNotifier, watchdogPeriodMs } from "./sd_notify.ts";

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
      using notifier = new ServiceNotifier({
        environment: { notifySocket: path, watchdogUsec: "60000000", watchdogPid: "7" },
        pid: 7,
        folder,
        onError: (error) => {
          throw error;
        },
      });
      assertEquals(notifier.watchdogMs, 30_000);
      await notifier.ready();
      await notifier.status("serving\n3 Services");
      await notifier.feedWatchdog();
      await notifier.stopping();
      assertEquals([await receive(), await receive(), await receive(), await receive()], [
        "READY=1",
        "STATUS=serving 3 Services",
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
    using notifier = new ServiceNotifier({
      environment: { notifySocket: path },
      pid: 7,
      folder,
      onError: (error) => {
        throw error;
      },
    });
    const sent = [notifier.feedWatchdog(), notifier.ready(), notifier.status("serving")];
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
    const options = {
      environment: { notifySocket: path },
      pid: 7,
      folder,
      onError: (error: unknown) => {
        throw error;
      },
    };
    using notifier = new ServiceNotifier(options);
    using sameProcessId = new ServiceNotifier(options);
    for (const text of ["one", "two"]) {
      await notifier.status(text);
      await sameProcessId.status(text);
      assertEquals([await receive(), await receive()], [`STATUS=${text}`, `STATUS=${text}`]);
      const left = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name);
      assertEquals(left, ["manager.sock"]);
    }
  });
});

Deno.test("ServiceNotifier sends nothing without systemd", async () => {
  using notifier = new ServiceNotifier({
    environment: {},
    pid: 7,
    folder: "/nonexistent",
    onError: (error) => {
      throw error;
    },
  });
  await notifier.ready();
  assertEquals(notifier.watchdogMs, undefined);
});

Deno.test("ServiceNotifier reports a removed socket once and continues", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const errors: unknown[] = [];
    using notifier = new ServiceNotifier({
      environment: { notifySocket: `${folder}/gone.sock` },
      pid: 7,
      folder,
      onError: (error) => errors.push(error),
    });
    await notifier.ready();
    await notifier.feedWatchdog();
    assertEquals(errors.length, 1);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("watchdogPeriodMs() is half of systemd's time, and nothing for another process", () => {
  assertEquals(watchdogPeriodMs({ watchdogUsec: "60000000" }, 7), 30_000);
  assertEquals(watchdogPeriodMs({ watchdogUsec: "60000000", watchdogPid: "8" }, 7), undefined);
  assertEquals(watchdogPeriodMs({ watchdogUsec: "60000000", watchdogPid: "" }, 7), 30_000);
  assertEquals(watchdogPeriodMs({ watchdogUsec: "soon" }, 7), undefined);
  assertEquals(watchdogPeriodMs({}, 7), undefined);
});
