import { assertEquals, assertRejects } from "@std/assert";
import { CommandError } from "../../../lib/os/command_runner.ts";
import { FakeCommandRunner } from "./fake_command_runner.ts";

Deno.test("FakeCommandRunner answers by prefix, the last script first, and remembers the calls", async () => {
  const runner = new FakeCommandRunner()
    .on("ip", { stdout: "any" })
    .on("ip -j", ({ stdin }) => ({ stdout: stdin, code: 3 }));
  assertEquals(await runner.run("ip", ["addr"]), { code: 0, stdout: "any", stderr: "" });
  const result = await runner.run("ip", ["-j"], { stdin: ["a", "b"] });
  assertEquals(result, { code: 3, stdout: "ab", stderr: "" });
  assertEquals(runner.calls.map(({ line, stdin }) => [line, stdin]), [["ip addr", ""], [
    "ip -j",
    "ab",
  ]]);
});

Deno.test("FakeCommandRunner refuses a command that no script answers", async () => {
  await assertRejects(() => new FakeCommandRunner().run("nft", ["list"]), Error, "'nft list'");
});

Deno.test("FakeCommandRunner fails the n-th call, carried out or not", async () => {
  let done = 0;
  const runner = new FakeCommandRunner().on("ip", () => ({ stdout: `${++done}` }));
  runner.failCall(1, "timeout").failCall(2, { code: 7 }, { carriedOut: true });
  const error = await assertRejects(() => runner.run("ip", []), CommandError);
  assertEquals([error instanceof CommandError && error.kind, done], ["timeout", 0]);
  assertEquals([(await runner.run("ip", [])).code, done], [7, 1]);
  assertEquals((await runner.run("ip", [])).stdout, "2");
  runner.failNext("not-found");
  await assertRejects(() => runner.run("ip", []), CommandError);
  assertEquals(done, 2);
});

Deno.test("FakeCommandRunner starts nothing for a caller that has given up", async () => {
  const runner = new FakeCommandRunner().on("ip", {});
  await assertRejects(() => runner.run("ip", [], { signal: AbortSignal.abort() }), CommandError);
  assertEquals(runner.calls, []);
});
