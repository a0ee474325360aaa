/**
 * A program: kube-relay with its own memory to be asked for. Each line on its standard input makes it
 * collect all garbage and print one line, {@linkcode RelayMeasurement} as JSON. Needs
 * `--v8-flags=--expose-gc`. Its arguments are kube-relay's.
 */
import { cpuUsage } from "node:process";
import { runCommandLine } from "../../../lib/tools/cli/command_line.ts";
import { createMachine } from "../../../main.ts";

/** The memory of a process after garbage collection, in bytes, and its CPU time in microseconds. */
export interface RelayMeasurement {
  readonly heap: number;
  readonly external: number;
  readonly resident: number;
  readonly cpu: number;
}

function measure(): RelayMeasurement {
  // V8 adds it with --expose-gc. Twice: finalizers of the first free what the second collects.
  const { gc } = globalThis as unknown as { gc: () => void };
  gc();
  gc();
  const { heapUsed, external, rss } = Deno.memoryUsage();
  const { user, system } = cpuUsage();
  return { heap: heapUsed, external, resident: rss, cpu: user + system };
}

async function answerQuestions(): Promise<void> {
  for await (const _ of Deno.stdin.readable) {
    const { cpu } = measure();
    // The CPU time of the collection itself does not count.
    const line = JSON.stringify({ ...measure(), cpu });
    await Deno.stdout.write(new TextEncoder().encode(`${line}\n`));
  }
}

if (import.meta.main) {
  void answerQuestions();
  Deno.exit(
    await runCommandLine(createMachine(), Deno.args, () => new AbortController().signal),
  );
}
