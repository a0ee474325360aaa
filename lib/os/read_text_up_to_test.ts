import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { isMissing, program } from "../../tests/support/requirement.ts";
import { runTool } from "../../tests/support/drivers/run_tool.ts";
import { withFolder } from "../../tests/support/with_folder.ts";
import { readTextUpTo } from "./read_text_up_to.ts";

async function withFile(content: string, test: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(path, content);
    await test(path);
  } finally {
    await Deno.remove(path);
  }
}

for (const [content, read] of [["", ""], ["a"], ["ü€😀".repeat(50_000)], ["\ufeffa: 1", "a: 1"]]) {
  Deno.test(`readTextUpTo() reads a whole text of ${content!.length} characters, without a byte order mark`, () =>
    withFile(content!, async (path) => {
      assertEquals(await readTextUpTo(path, 1_000_000), read ?? content);
    }));
}

Deno.test("readTextUpTo() reads a text of the maximum length, and no longer one", () =>
  withFile("üü", async (path) => {
    assertEquals(await readTextUpTo(path, 4), "üü");
    await assertRejects(() => readTextUpTo(path, 3), RangeError, "more than 3 bytes");
  }));

Deno.test("readTextUpTo() rejects for an endless file, a folder and nothing", async () => {
  await assertRejects(() => readTextUpTo("/dev/zero", 100_000), RangeError, "more than 100000");
  await assertRejects(() => readTextUpTo("/", 10));
  await assertRejects(() => readTextUpTo("/no/such/file", 10), Deno.errors.NotFound);
});

const ignore = isMissing("readTextUpTo() with pipes", [program("mkfifo")]);

/** Runs a test with a named pipe. */
function withPipe(test: (path: string) => Promise<void>): Promise<void> {
  return withFolder(async (folder) => {
    await runTool("mkfifo", [`${folder}/pipe`]);
    await test(`${folder}/pipe`);
  });
}

Deno.test({
  name: "readTextUpTo() waits for the writer of a named pipe, and reads it to its end",
  ignore,
  fn: () =>
    withPipe(async (path) => {
      const reading = readTextUpTo(path, 1_000_000);
      using writer = await Deno.open(path, { write: true });
      const text = "x".repeat(300_000);
      for (const piece of ["a", text, "b"]) {
        let rest = new TextEncoder().encode(piece);
        while (rest.length > 0) rest = rest.subarray(await writer.write(rest));
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      writer.close();
      assertEquals((await reading).length, text.length + 2);
    }),
});

Deno.test({
  name: "readTextUpTo() gives up a pipe that is silent, and leaves no thread in the kernel",
  ignore,
  fn: () =>
    withPipe(async (path) => {
      const clock = new FakeClock();
      let failure: unknown;
      const reading = readTextUpTo(path, 100, { clock }).catch((error) => failure = error);
      for (let turn = 0; turn < 1_000 && failure === undefined; turn++) {
        await clock.advance(1_000);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      await reading;
      assert(failure instanceof Error);
      assertEquals(failure.message, "nothing was written to this pipe for 60 s");
    }),
});

Deno.test({
  name: "readTextUpTo() refuses anything but a regular file, if requested, without waiting for it",
  ignore,
  fn: () =>
    withPipe(async (pipe) => {
      const link = `${pipe}.link`;
      await Deno.symlink(pipe, link);
      for (const path of [pipe, link, "/dev/zero", "/dev/tty"]) {
        await assertRejects(() => readTextUpTo(path, 100, { onlyFiles: true }));
      }
      const reading = () => readTextUpTo(link, 100, { onlyFiles: true });
      await assertRejects(reading, TypeError, "it is not a regular file");
    }),
});
