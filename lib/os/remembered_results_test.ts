import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { RememberedResults } from "./remembered_results.ts";

function createStage() {
  const clock = new FakeClock();
  const machine = new FakeCommandRunner().on("tool", { code: 3, stdout: "answer" });
  return { clock, machine, commands: new RememberedResults(machine, clock) };
}

const RECENT = { mayBeRecent: true };

Deno.test("RememberedResults runs a command once for all who take a recent result", async () => {
  const { machine, commands } = createStage();
  const results = await Promise.all([1, 2].map(() => commands.run("tool", ["a"], RECENT)));
  results.push(await commands.run("tool", ["a"], RECENT));
  assertEquals(results.map(({ code, stdout }) => [code, stdout]), Array(3).fill([3, "answer"]));
  assertEquals(machine.calls.length, 1);
  await commands.run("tool", ["b"], RECENT);
  await commands.run("tool2", ["a"], RECENT);
  await commands.run("tool", ["a"], { ...RECENT, stdin: "x" });
  assertEquals(machine.calls.length, 4, "program, arguments and input make the difference");
});

Deno.test("RememberedResults runs a command again later, and whenever a new result is needed", async () => {
  const { clock, machine, commands } = createStage();
  await commands.run("tool", ["a"], RECENT);
  await commands.run("tool", ["a"]);
  assertEquals(machine.calls.length, 2);
  await clock.advance(9_999);
  await commands.run("tool", ["a"], RECENT);
  assertEquals(machine.calls.length, 2);
  await clock.advance(1);
  await commands.run("tool", ["a"], RECENT);
  assertEquals(machine.calls.length, 3);
});

Deno.test("RememberedResults keeps no failure, and gives that of one caller to no other", async () => {
  const { machine, commands } = createStage();
  machine.failNext("aborted");
  const first = commands.run("tool", ["a"], RECENT);
  const second = commands.run("tool", ["a"], RECENT);
  await assertRejects(() => first);
  assertEquals((await second).stdout, "answer");
  await commands.run("tool", ["a"], RECENT);
  assertEquals(machine.calls.length, 2);
});
