import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { CommandError } from "../../../lib/os/command_runner.ts";
import { HungTools } from "./hung_tools.ts";

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
  const { noting, avoiding } = new HungTools({ commands, clock });
  const fails = (runner: typeof noting, words: string) =>
    assertRejects(() => runner.run("nft", ["list"]), CommandError, words);
  return { state, clock, commands, noting, avoiding, fails };
}

Deno.test("HungTools.avoiding waits for a tool once, for all callers", async () => {
  const { commands, noting, avoiding, fails } = machine();
  await fails(noting, "hangs");
  for (let index = 0; index < 3; index++) await fails(avoiding, "it hung a moment ago");
  assertEquals(commands.calls.length, 1);
});

Deno.test("HungTools.noting runs every command: one may have to remove the leftovers of another", async () => {
  const { commands, noting, fails } = machine();
  for (let index = 0; index < 3; index++) await fails(noting, "hangs");
  assertEquals(commands.calls.length, 3);
});

Deno.test("HungTools.avoiding starts other tools nevertheless", async () => {
  const { avoiding, fails } = machine();
  await fails(avoiding, "hangs");
  assertEquals((await avoiding.run("ip", [])).stdout, "fine");
});

Deno.test("HungTools.avoiding starts a tool again after a minute, or once it has answered", async () => {
  const { state, clock, noting, avoiding, fails } = machine();
  await fails(avoiding, "hangs");
  await clock.advance(60_000);
  await fails(avoiding, "hangs");
  state.hangs = false;
  await fails(avoiding, "it hung a moment ago");
  await noting.run("nft", []);
  assertEquals((await avoiding.run("nft", [])).stdout, "fine");
});
