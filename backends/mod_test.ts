import { assertEquals } from "@std/assert";
import { FakeClock } from "../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../tests/support/fakes/fake_command_runner.ts";
import { FakeNetwork } from "../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../tests/support/fakes/memory_logger.ts";
import { BACKEND_MODES } from "../lib/proxy/backend.ts";
import { BACKENDS } from "./mod.ts";

Deno.test("BACKENDS has every mode that is known", () => {
  assertEquals(Object.keys(BACKENDS).sort(), [...BACKEND_MODES].sort());
});

for (const [mode, create] of Object.entries(BACKENDS)) {
  Deno.test(`BACKENDS.${mode} makes a backend without doing anything`, async () => {
    const [clock, commands, network] = [
      new FakeClock(),
      new FakeCommandRunner(),
      new FakeNetwork(),
    ];
    const logger = new MemoryLogger();
    const relay = {
      addressMode: "auto",
      udpTimeoutMs: 250,
      maxConnectionsPerService: 100,
      stateDirectory: "/nonexistent/kube-relay",
      ipvsDrainTimeoutMs: 900_000,
    } as const;
    await using backend = create(
      { clock, commands, network, logger, random: () => 0 },
      {
        family: "IPv6",
        relay,
        iptables: { masqueradeBit: 14, localhostNodePorts: true, syncPeriod: 30_000 },
        ipvs: {
          scheduler: "",
          excludeCIDRs: [],
          strictARP: false,
          tcpTimeout: 0,
          tcpFinTimeout: 0,
          udpTimeout: 0,
          syncPeriod: 30_000,
        },
        nftables: { masqueradeBit: 14, syncPeriod: 30_000 },
      },
    );
    assertEquals([backend.mode, backend.family], [mode, "IPv6"] as never);
    assertEquals([clock.pendingTimers, network.listeners, logger.lines], [0, [], []] as never);
  });
}
