import { assertEquals, assertRejects } from "@std/assert";
import { LineProcess } from "./line_process.ts";

Deno.test("LineProcess returns lines one by one, and accepts lines", async () => {
  await using process = new LineProcess("cat", []);
  await process.writeLine("one");
  await process.writeLine("two ü");
  assertEquals(await process.nextLine(), "one");
  assertEquals(await process.nextLine(), "two ü");
});

Deno.test("LineProcess.nextLine() rejects with the last output of a process that has ended", async () => {
  await using process = new LineProcess("sh", ["-c", "echo first; echo because >&2; exit 3"]);
  assertEquals(await process.nextLine(), "first");
  await assertRejects(() => process.nextLine(), Error, "because");
  assertEquals((await process.status()).code, 3);
});

Deno.test("LineProcess.kill() ends a process that waits, and may be called twice", async () => {
  const process = new LineProcess("sleep", ["1000"]);
  assertEquals((await process.kill()).signal, "SIGKILL");
  assertEquals((await process.kill()).success, false);
});
