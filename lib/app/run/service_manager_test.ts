import { syncedEvent } from "../../../tests/support/builders/sync_events.ts";
import { timedLoop } from "../../../tests/support/builders/timed_loop.ts";
import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { serviceLoop } from "../../../tests/support/builders/builders.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import type { SyncOutcome } from "../../engine/sync_loop.ts";
import { mayFeedWatchdog, ServiceManager } from "./service_manager.ts";

/** A loop that is open; the first sync begins. */
function openLoop(clock: FakeClock, run: () => Promise<SyncOutcome>) {
  const periods = { minPeriodMs: 1000, maxPeriodMs: 7_200_000, retryMs: () => 10_000 };
  const loop = timedLoop(clock, periods, run);
  loop.open();
  return loop;
}

for (const outcome of ["done", "retry"] as const) {
  Deno.test(`mayFeedWatchdog() is not tripped by an hour after syncs with result '${outcome}'`, async () => {
    const clock = new FakeClock();
    const loop = openLoop(clock, () => Promise.resolve(outcome));
    await clock.advance(3_600_000);
    assertEquals(mayFeedWatchdog([loop.activity], clock.now()), true);
    await loop.stop();
  });
}

Deno.test("mayFeedWatchdog() is tripped by a sync that never ends", async () => {
  const clock = new FakeClock();
  const end = Promise.withResolvers<SyncOutcome>();
  const loop = openLoop(clock, () => end.promise);
  await clock.advance(119_999);
  assertEquals(mayFeedWatchdog([loop.activity], clock.now()), true);
  await clock.advance(1);
  assertEquals(mayFeedWatchdog([loop.activity], clock.now()), false);
  end.resolve("done");
  await loop.stop();
});

Deno.test("mayFeedWatchdog() is tripped by a request that never gets its run", () => {
  const activity = { pendingSince: 0 };
  assertEquals(mayFeedWatchdog([{}, activity], 119_999), true);
  assertEquals(mayFeedWatchdog([{}, activity], 120_000), false);
});

/** A service manager and the messages that systemd gets. */
async function withSystemd(
  test: (stage: { clock: FakeClock; manager: ServiceManager; heard: string[] }) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/notify`;
  const socket = Deno.listenDatagram({ transport: "unixpacket", path });
  const heard: string[] = [];
  const hearing = (async () => {
    for await (const [bytes] of socket) heard.push(new TextDecoder().decode(bytes));
  })();
  const clock = new FakeClock();
  const env = (name: string) => name === "NOTIFY_SOCKET" ? path : undefined;
  const process = { env, pid: 1 };
  using manager = new ServiceManager({ clock, logger: new MemoryLogger(), process }, { folder });
  await test({ clock, manager, heard });
  socket.close();
  await hearing;
  await Deno.remove(folder, { recursive: true });
}

const [V4, V6] = [serviceLoop("IPv4"), serviceLoop("IPv6")];
const OTHER: LoopId = { controller: "routing", family: "IPv4" };

Deno.test("ServiceManager is ready once all loops of all controllers have synced all objects", async () => {
  await withSystemd(async ({ clock, manager, heard }) => {
    for (const loop of [V4, V6, OTHER]) manager.on({ kind: "started", loop });
    manager.on(syncedEvent(V4, true));
    manager.on(syncedEvent(V6, false));
    manager.on(syncedEvent(OTHER, true));
    await manager.notifyPhase();
    await eventually("the phase is heard", () => heard.length > 0);
    assertEquals(heard, ["STATUS=waiting for objects"]);
    manager.on(syncedEvent(V6, true));
    manager.on(syncedEvent(V4, true));
    await manager.notifyPhase();
    await eventually("the phase is heard again", () => heard.length > 2);
    assertEquals(heard.slice(1), ["READY=1", "STATUS=waiting for objects"]);
    assertEquals(clock.pendingTimers, 1);
  });
});

Deno.test("ServiceManager waits a minute for the rest once a controller has synced", async () => {
  await withSystemd(async ({ clock, manager, heard }) => {
    for (const loop of [V4, V6, OTHER]) manager.on({ kind: "started", loop });
    manager.on(syncedEvent(V4, true));
    assertEquals(clock.pendingTimers, 0, "the other family has not synced");
    manager.on(syncedEvent(V6, true));
    await clock.advance(119_999);
    assertEquals(heard, []);
    await clock.advance(1);
    await eventually("it is ready", () => heard.length > 0);
    assertEquals(heard, ["READY=1"]);
  });
});
