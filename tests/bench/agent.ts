// deno-lint-ignore-file no-console -- it answers in lines on its standard output
/**
 * The benchmark's agent in a network namespace: runs tools and connects there, and reports the
 * times.
 *
 * @module
 */
import { readTextLines } from "./text_lines.ts";
import { type AgentAnswer, type AgentRequest, BENCH_PORT } from "./agent_protocol.ts";
import { childUsage, connectMicroseconds, sendMicroseconds } from "./libc.ts";

/** The benchmark stops waiting for a line after 30 s. */
const PATIENCE_MS = 5_000;

if (import.meta.main) {
  using listener = Deno.listen({ hostname: "0.0.0.0", port: BENCH_PORT });
  void acceptAll(listener);
  // This socket has no reader: a full buffer drops datagrams, at a constant cost.
  const sink = Deno.listenDatagram({ transport: "udp", hostname: "0.0.0.0", port: BENCH_PORT });
  say({ kind: "patience" });
  for await (const line of readTextLines(Deno.stdin.readable)) {
    const timer = setInterval(() => say({ kind: "patience" }), PATIENCE_MS);
    say(await answer(JSON.parse(line)).catch(failed));
    clearInterval(timer);
  }
  sink.close();
}

function say(answer: AgentAnswer): void {
  console.log(JSON.stringify(answer));
}

function failed(error: unknown): AgentAnswer {
  return { kind: "failed", reason: error instanceof Error ? error.message : String(error) };
}

async function answer(request: AgentRequest): Promise<AgentAnswer> {
  switch (request.kind) {
    case "run":
      return await run(request);
    case "connect":
      return await connect(request);
    case "send": {
      const microsecondsEach = sendMicroseconds(request, BENCH_PORT);
      return { kind: "sent", microsecondsEach };
    }
  }
}

async function run(
  { program, args }: AgentRequest & { readonly kind: "run" },
): Promise<AgentAnswer> {
  const before = childUsage();
  const started = performance.now();
  const { code, stderr } = await new Deno.Command(program, {
    args: [...args],
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).output();
  const wallMs = performance.now() - started;
  const { cpuMs, peakMiB } = childUsage();
  if (code !== 0) {
    const words = new TextDecoder().decode(stderr).trim();
    throw new Error(`Cannot run '${[program, ...args].join(" ")}': exit code ${code}: ${words}`);
  }
  return { kind: "ran", run: { wallMs, cpuMs: cpuMs - before.cpuMs, peakMiB } };
}

/** Takes turns between the addresses: what else happens on the machine hits all of them alike. */
async function connect(
  { addresses, rounds }: AgentRequest & { readonly kind: "connect" },
): Promise<AgentAnswer> {
  const times: Record<string, number[]> = {};
  for (let round = 0; round < rounds; round++) {
    const first = round % addresses.length;
    for (const address of [...addresses.slice(first), ...addresses.slice(0, first)]) {
      (times[address] ??= []).push(connectMicroseconds(address, BENCH_PORT));
    }
    // Connections wait in the backlog meanwhile; it holds 128.
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return { kind: "connected", times };
}

async function acceptAll(listener: Deno.Listener): Promise<void> {
  for await (const connection of listener) connection.close();
}
