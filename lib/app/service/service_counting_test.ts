import { assert, assertEquals } from "@std/assert";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { createServiceTraffic } from "../run/configured_metrics.ts";

Deno.test("createServiceTraffic() counts in the modes that can, if it is asked for", () => {
  const logger = new MemoryLogger();
  for (const mode of ["userspace", "nftables"] as const) {
    assert(createServiceTraffic({ logger }, { mode, serviceCounters: true }));
    assertEquals(createServiceTraffic({ logger }, { mode, serviceCounters: false }), undefined);
  }
  assertEquals(logger.lines, []);
});

Deno.test("createServiceTraffic() names the modes that count, if this one does not", () => {
  for (const mode of ["iptables", "ipvs"] as const) {
    const logger = new MemoryLogger();
    assertEquals(createServiceTraffic({ logger }, { mode, serviceCounters: false }), undefined);
    assertEquals(logger.lines, []);
    assertEquals(createServiceTraffic({ logger }, { mode, serviceCounters: true }), undefined);
    const [{ level, fields } = {}] = logger.lines;
    assertEquals([level, fields], ["warn", { mode, modes: "userspace, nftables" }]);
  }
});
