import { assert, assertEquals } from "@std/assert";
import { readLines } from "./line_reader.ts";

const encoder = new TextEncoder();

function streamOf(...chunks: readonly (string | Uint8Array)[]): ReadableStream<Uint8Array> {
  return ReadableStream.from(
    chunks.map((chunk) => typeof chunk === "string" ? encoder.encode(chunk) : chunk),
  );
}

async function linesOf(...chunks: readonly (string | Uint8Array)[]): Promise<string[]> {
  const lines: string[] = [];
  assertEquals(await readLines(streamOf(...chunks), (line) => void lines.push(line)).done, {});
  return lines;
}

Deno.test("readLines() hands over lines, however they are cut into pieces", async () => {
  assertEquals(await linesOf("a\nb", "c\n", "\n", "last"), ["a", "bc", "", "last"]);
  assertEquals(await linesOf(), []);
  const euro = encoder.encode("1 €\n");
  assertEquals(await linesOf(euro.subarray(0, 3), euro.subarray(3)), ["1 €"]);
});

Deno.test("readLines() cuts a line that never ends", async () => {
  const lines = await linesOf(...Array.from({ length: 300 }, () => "x".repeat(1024)));
  assertEquals(lines.map(({ length }) => length), [64 * 1024]);
});

Deno.test("readLines() reads no further while a line is pending", async () => {
  let pulled = 0;
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.enqueue(encoder.encode(`${pulled++}\n`));
      if (pulled === 100) controller.close();
    },
  }, { highWaterMark: 0 });
  const gate = Promise.withResolvers<void>();
  let lines = 0;
  const reading = readLines(stream, () => ++lines === 10 ? gate.promise : undefined);
  for (let turn = 0; turn < 1000; turn++) await Promise.resolve();
  assertEquals([lines, pulled], [10, 10]);
  gate.resolve();
  await reading.done;
  assertEquals(lines, 100);
});

Deno.test("readLines() ends if its receiver throws, and releases the stream", async () => {
  let cancelled = false;
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(encoder.encode("line\n")),
    cancel: () => void (cancelled = true),
  });
  const { failure } = await readLines(stream, () => {
    throw new Error("enough");
  }).done;
  assertEquals(failure instanceof Error && failure.message, "enough");
  assert(cancelled);
});
