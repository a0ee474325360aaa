import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import { InterfaceWatcher } from "./interface_watcher.ts";

Deno.test("InterfaceWatcher looks at once and every 10 s until it is stopped", async () => {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const calls: (readonly InterfaceAddress[])[] = [];
  const watcher = new InterfaceWatcher(
    { clock, logger, network: new FakeNetwork() },
    [{ onInterfaceAddresses: (addresses) => void calls.push(addresses) }],
  );
  assertEquals(calls.length, 0);
  watcher.start();
  assertEquals(calls.length, 1);
  const addresses = calls[0]?.map(({ address }) => address) ?? [];
  assertEquals(addresses, addresses.toSorted());
  await clock.advance(20_000);
  assertEquals(calls.length, 3);
  watcher.stop();
  await clock.advance(20_000);
  assertEquals([calls.length, clock.pendingTimers], [3, 0]);
});

Deno.test("InterfaceWatcher continues looking, and reports it, when the addresses cannot be read", async () => {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const fake = new FakeNetwork();
  let isExhausted = true;
  const network = {
    interfaceAddresses() {
      if (isExhausted) throw new Error("Too many open files (os error 24)");
      return fake.interfaceAddresses();
    },
  };
  let calls = 0;
  const watcher = new InterfaceWatcher({ clock, logger, network }, [
    { onInterfaceAddresses: () => void calls++ },
  ]);
  watcher.start();
  await clock.advance(10_000);
  assertEquals([calls, logger.lines.map(({ level }) => level)], [0, ["warn", "warn"]]);
  isExhausted = false;
  await clock.advance(10_000);
  assertEquals([calls, logger.lines.length], [1, 2]);
  watcher.stop();
});

Deno.test("InterfaceWatcher leaves out addresses that a controller added", () => {
  const network = {
    interfaceAddresses: (): InterfaceAddress[] => [
      { interfaceName: "eth0", address: parseIpAddress("192.0.2.7") },
      { interfaceName: "eth0", address: parseIpAddress("198.51.100.2") },
    ],
  };
  let seen: readonly InterfaceAddress[] = [];
  const watcher = new InterfaceWatcher(
    { clock: new FakeClock(), logger: new MemoryLogger(), network },
    [{ onInterfaceAddresses: (addresses) => void (seen = addresses) }],
    [{}, { ownsAddress: ({ address }) => address === "192.0.2.7" }],
  );
  watcher.start();
  watcher.stop();
  assertEquals(seen.map(({ address }) => `${address}`), ["198.51.100.2"]);
});
