import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { cpuCount } from "./cpu_count.ts";

Deno.test("cpuCount() counts all CPUs of the machine", async () => {
  assertEquals(await cpuCount(new FakeCommandRunner().on("nproc --all", { stdout: "64\n" })), 64);
});

for (
  const [name, commands] of [
    ["is missing", new FakeCommandRunner().failNext("not-found")],
    ["fails", new FakeCommandRunner().on("nproc", { code: 1, stderr: "no --all" })],
    ["prints no number", new FakeCommandRunner().on("nproc", { stdout: "many\n" })],
  ] as const
) {
  Deno.test(`cpuCount() goes by the runtime's count if nproc ${name}`, async () => {
    assertEquals(await cpuCount(commands), navigator.hardwareConcurrency);
  });
}
