import { assertEquals } from "@std/assert";
import { namesIn, withFolder } from "../../tests/support/with_folder.ts";
import { ServiceNotifier } from "./sd_notify.ts";

function processOf(env: Readonly<Record<string, string>>) {
  return { env: (name: string) => env[name], pid: 7 };
}

function fail(error: unknown): never {
  throw error;
}

Deno.test("ServiceNotifier sends messages in their order, and leaves no name that another program could take", () =>
  withFolder(async (folder) => {
    const path = `${folder}/manager.sock`;
    const socket = Deno.listenDatagram({ transport: "unixpacket", path });
    const receive = async () => new TextDecoder().decode((await socket.receive())[0]);
    using notifier = new ServiceNotifier(processOf({ NOTIFY_SOCKET: path }), folder, fail);
    // As in a container that shares the folder.
    using sameProcessId = new ServiceNotifier(processOf({ NOTIFY_SOCKET: path }), folder, fail);
    const messages = ["READY=1", "STATUS=serving", "WATCHDOG=1", "STOPPING=1"];
    await Promise.all(messages.map((message) => notifier.send(message)));
    await sameProcessId.send("STATUS=other");
    for (const message of [...messages, "STATUS=other"]) assertEquals(await receive(), message);
    assertEquals(await namesIn(folder), ["manager.sock"]);
    socket.close();
  }));

Deno.test("ServiceNotifier sends nothing without systemd", async () => {
  using notifier = new ServiceNotifier(
    processOf({ WATCHDOG_USEC: "60000000" }),
    "/nonexistent",
    fail,
  );
  await notifier.send("READY=1");
  assertEquals(notifier.watchdogMs, undefined);
});

Deno.test("ServiceNotifier reports a removed socket once and continues", () =>
  withFolder(async (folder) => {
    const errors: unknown[] = [];
    const env = processOf({ NOTIFY_SOCKET: `${folder}/gone.sock` });
    using notifier = new ServiceNotifier(env, folder, (error) => errors.push(error));
    await notifier.send("READY=1");
    await notifier.send("WATCHDOG=1");
    assertEquals(errors.length, 1);
  }));

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
