import { assertEquals, assertRejects } from "@std/assert";
import { CommandError } from "../lib/os/command_runner.ts";
import { supportOf } from "../lib/proxy/service_mode.ts";
import { FakeClock } from "../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../tests/support/fakes/fake_command_runner.ts";
import { FakeNetwork } from "../tests/support/fakes/fake_network.ts";
import { createHostChecks, rememberHungTools } from "./host_checks.ts";

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

/** `nft` hangs until it is repaired; `ip` works. */
function machine() {
  const state = { hangs: true };
  const clock = new FakeClock();
  const commands = new FakeCommandRunner()
    .on("ip", { stdout: "fine" })
    .on("nft", ({ program, args }) => {
      if (!state.hangs) return { stdout: "fine" };
      throw new CommandError(program, args, "timeout", "hangs");
    });
  const { noting, avoiding } = rememberHungTools({ commands, clock });
  const fails = (runner: typeof noting, words: string) =>
    assertRejects(() => runner.run("nft", ["list"]), CommandError, words);
  return { state, clock, commands, noting, avoiding, fails };
}

Deno.test("rememberHungTools().avoiding waits for a tool once, for all callers", async () => {
  const { commands, noting, avoiding, fails } = machine();
  await fails(noting, "hangs");
  for (let index = 0; index < 3; index++) await fails(avoiding, "it hung a moment ago");
  assertEquals(commands.calls.length, 1);
});

Deno.test("rememberHungTools().noting runs every command: one may have to remove the leftovers of another", async () => {
  const { commands, noting, fails } = machine();
  for (let index = 0; index < 3; index++) await fails(noting, "hangs");
  assertEquals(commands.calls.length, 3);
});

Deno.test("rememberHungTools().avoiding starts other tools nevertheless", async () => {
  const { avoiding, fails } = machine();
  await fails(avoiding, "hangs");
  assertEquals((await avoiding.run("ip", [])).stdout, "fine");
});

Deno.test("rememberHungTools().avoiding starts a tool again after a minute, or once it has answered", async () => {
  const { state, clock, noting, avoiding, fails } = machine();
  await fails(avoiding, "hangs");
  await clock.advance(60_000);
  await fails(avoiding, "hangs");
  state.hangs = false;
  await fails(avoiding, "it hung a moment ago");
  await noting.run("nft", []);
  assertEquals((await avoiding.run("nft", [])).stdout, "fine");
});
