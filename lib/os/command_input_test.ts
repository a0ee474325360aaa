import { assertEquals } from "@std/assert";
import { systemCommandRunner } from "./command_runner.ts";

/** Pieces that come when they are asked for. */
function heldInput(first: string) {
  const end = Promise.withResolvers<void>();
  async function* pieces(): AsyncGenerator<string> {
    yield first;
    await end.promise;
    yield "last\n";
  }
  return { pieces: pieces(), end: () => end.resolve() };
}

Deno.test("an AsyncIterable holds the input of a command open until it ends", async () => {
  const input = heldInput("first\n");
  const lines: string[] = [];
  const { code } = await systemCommandRunner.run("cat", [], {
    stdin: input.pieces,
    onLine(line) {
      lines.push(line);
      input.end();
    },
  });
  assertEquals([code, lines], [0, ["first", "last"]]);
});

Deno.test("a command that ends by itself does not wait for the rest of its input", async () => {
  const { code, stdout } = await systemCommandRunner.run("head", ["-n", "1"], {
    stdin: heldInput("only\nanother\n").pieces,
  });
  assertEquals([code, stdout], [0, "only\n"]);
});
