/** Tests the probe of the ipvs mode on a kernel with IPVS, and the messages of its tools. */
import { assertEquals } from "@std/assert";
import { probeIpvsMode, probeScheduler } from "../../backends/ipvs/probe.ts";
import { SCHEDULERS } from "../../backends/ipvs/scheduler.ts";
import { supportOf } from "../../lib/proxy/service_mode.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { DEADLINE_FACTOR } from "../support/deadline_factor.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { GUEST } from "./guest.ts";

const test = testNeeding("IPVS on a kernel that has it", [
  GUEST,
  ...netnsRequirements(),
  ...["ipvsadm", "ipset", "iptables-legacy", "ip6tables-legacy"].map(program),
]);

/** A program that is slow in the guest is not stuck. */
const DEPENDENCIES = { commands: systemCommandRunner, timeoutMs: 3_000 * DEADLINE_FACTOR };

test("probeIpvsMode() finds everything if the kernel has IPVS", async () => {
  const results = await probeIpvsMode(DEPENDENCIES);
  const missing = results.filter(({ available, required }) => required && !available);
  assertEquals(missing.map(({ feature, detail }) => `${feature}: ${detail}`), []);
  assertEquals(supportOf(results).families, ["IPv4", "IPv6"]);
});

test("probeScheduler() finds every scheduler of IPVS, and no unknown one", async () => {
  for (const scheduler of [...SCHEDULERS, "roundrobin"]) {
    const rows = await probeScheduler(DEPENDENCIES, scheduler);
    const missing = rows.filter(({ available }) => !available).map(({ detail }) => detail);
    const isThere = scheduler !== "roundrobin";
    assertEquals(missing, isThere ? [] : ["the kernel has no scheduler 'roundrobin'"]);
  }
});
