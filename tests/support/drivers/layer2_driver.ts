/**
 * A program that runs the real data plane of layer 2. Its argument is the IP family. It reads
 * requests as lines of JSON and answers each by one line.
 */
import { Layer2DataPlane } from "../../../backends/announce/layer2/data_plane.ts";
import { IP_FAMILIES, type IpAddress } from "../../../lib/net/ip_address.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";

/** A request to the program. */
export type Layer2Request =
  | {
    readonly do: "sync";
    readonly addresses: readonly string[];
    readonly interfaces?: readonly string[];
  }
  | { readonly do: "links"; readonly interfaces: readonly string[] }
  | { readonly do: "inspect" | "findConflicts" | "cleanup" | "previewCleanup" };

async function main(): Promise<void> {
  const family = IP_FAMILIES.find((name) => name === Deno.args[0]) ?? "IPv4";
  const edges = { clock: systemClock, commands: systemCommandRunner, logger: new MemoryLogger() };
  const plane = new Layer2DataPlane(edges, { family, announceIntervalMs: 60_000 });
  const answer = async (request: Layer2Request): Promise<unknown> => {
    if (request.do === "links") {
      plane.recheck();
      return await plane.links(request.interfaces);
    }
    if (request.do === "findConflicts") {
      const found = await plane.findConflicts();
      return [...found].flatMap(([address, machine]) => machine === undefined ? [] : address);
    }
    if (request.do === "previewCleanup") return await plane.cleanup({ dryRun: true });
    if (request.do !== "sync") return await plane[request.do]();
    return await plane.sync(
      new Set(request.addresses as readonly IpAddress[]),
      request.interfaces ?? [],
    );
  };
  let rest = "";
  for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    // deno-lint-ignore no-console -- the answer
    for (const line of lines) console.log(JSON.stringify(await answer(JSON.parse(line))));
  }
}

if (import.meta.main) await main();
