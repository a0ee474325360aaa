import { assertEquals } from "@std/assert";
import { FakeClock } from "../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../tests/support/fakes/fake_command_runner.ts";
import { FakeNetwork } from "../tests/support/fakes/fake_network.ts";
import { CommandError } from "../lib/os/command_runner.ts";
import { supportOf } from "../lib/proxy/mode_support.ts";
import { createHostChecks } from "./host_checks.ts";

/** A machine on which nothing is installed, or on which all hangs. */
function bareMachine(kind: CommandError["kind"] = "not-found") {
  const commands = new FakeCommandRunner().on("", ({ program, args }) => {
    throw new CommandError(program, args, kind, "not there");
  });
  const edges = { clock: new FakeClock(), network: new FakeNetwork(), commands };
  const checks = createHostChecks({
    ...edges,
    uid: 0,
    kernelRelease: "6.1.0",
    env: () => undefined,
  });
  return { checks, commands, clock: edges.clock };
}

Deno.test("createHostChecks() runs nothing before it is asked", () => {
  assertEquals(bareMachine().commands.calls, []);
});

for (const mode of ["iptables", "ipvs", "nftables"] as const) {
  Deno.test(`probeMode() reports on a bare machine the missing parts of ${mode}, and the packages that provide them`, async () => {
    const { checks } = bareMachine();
    const { families, missing } = supportOf(await checks.probeMode(mode));
    assertEquals(families, []);
    assertEquals(missing.filter(({ cure, lost }) => !cure || !lost), []);
  });
}

Deno.test("probeMode() asks nothing of the kernel for the userspace mode", async () => {
  const { checks, commands } = bareMachine();
  assertEquals([await checks.probeMode("userspace"), commands.calls], [[], []]);
});

Deno.test("findings() does not wait for a tool that hung while a mode was tried", async () => {
  const { checks, commands, clock } = bareMachine("timeout");
  await checks.probeMode("nftables");
  const hung = commands.calls.filter(({ program }) => program === "nft").length;
  const looking = checks.findings({});
  await clock.advance(10_000);
  await looking;
  assertEquals(commands.calls.filter(({ program }) => program === "nft").length, hung);
});
