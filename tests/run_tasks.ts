/**
 * Runs the named tasks of deno.json side by side, each to its end, and fails if one of them failed.
 * `deno task` itself stops the others as soon as one fails, which would hide their failures.
 *
 * @module
 */

const encoder = new TextEncoder();

/** Control characters but tab and escape. A log with one of them is binary for `grep`. */
// deno-lint-ignore no-control-regex -- they are what it finds
const CONTROL = /[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]/g;

/** Prints a line with the name of its task. */
function print(task: string, line: string): void {
  const text = line.replace(CONTROL, (found) => JSON.stringify(found).slice(1, -1));
  Deno.stdout.writeSync(encoder.encode(`[${task}] ${text}\n`));
}

async function run(task: string): Promise<boolean> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["task", task],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let hasSummary = false;
  const printLines = async (stream: ReadableStream<Uint8Array<ArrayBuffer>>) => {
    let rest = "";
    for await (const text of stream.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        hasSummary ||= line.includes(" passed ") && line.includes(" failed ");
        print(task, line);
      }
    }
    if (rest !== "") print(task, rest);
  };
  await Promise.all([printLines(child.stdout), printLines(child.stderr)]);
  const { success, code } = await child.status;
  if (!hasSummary) print(task, `FAILED | 0 passed | 1 failed (ended with status ${code})`);
  return success && hasSummary;
}

const succeeded = await Promise.all(Deno.args.map(run));
Deno.exit(succeeded.every(Boolean) ? 0 : 1);
