/**
 * A program: the real way of making addresses local, moved by lines of JSON, each answered by one.
 * Its arguments are the IP family, the folder of the record, and the address mode.
 */
import { createFileStore } from "../../../backends/userspace/addresses/address_store.ts";
import type {
  AcquiredAddress,
  WantedAddress,
} from "../../../backends/userspace/addresses/addresses.ts";
import type { Cidr } from "../../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpAddress } from "../../../lib/net/ip_address.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { ListedAddresses } from "./listed_addresses.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";

/** A request to the program. */
export type AddressesRequest =
  | { readonly do: "start" | "probe" | "releaseUnclaimed" | "cleanup" | "describe" }
  | { readonly do: "configure"; readonly serviceCidrs: readonly Cidr[]; readonly count: number }
  | { readonly do: "acquire"; readonly wanted: readonly WantedAddress[] }
  | { readonly do: "release"; readonly addresses: readonly IpAddress[] };

/** The answer to `describe`. */
export interface AddressesDescription {
  readonly summary: string;
  /** Processes started so far. */
  readonly processes: number;
  readonly warnings: readonly string[];
}

/** The answer to `acquire`. */
export type AcquiredEntries = readonly (readonly [IpAddress, AcquiredAddress])[];

async function main(): Promise<void> {
  const family = IP_FAMILIES.find((name) => name === Deno.args[0]) ?? "IPv4";
  const mode = (["auto", "each", "anyip", "none"] as const)
    .find((name) => name === Deno.args[2]) ?? "auto";
  const logger = new MemoryLogger();
  let processes = 0;
  const addresses = new ListedAddresses(
    {
      runner: {
        run: (...command) => {
          processes++;
          return systemCommandRunner.run(...command);
        },
      },
      network: systemNetwork,
      clock: systemClock,
      logger,
      store: createFileStore({ directory: Deno.args[1] ?? "", family }),
    },
    family,
    mode,
  );
  const answer = async (request: AddressesRequest): Promise<unknown> => {
    switch (request.do) {
      case "configure":
        return await addresses.configure(request.serviceCidrs, request.count);
      case "acquire":
        return [...await addresses.acquireList(request.wanted)];
      case "release":
        return await addresses.releaseList(request.addresses);
      case "describe": {
        const warnings = logger.lines.filter(({ level }) => level === "warn");
        const texts = warnings.map(({ message, fields }) => `${message} ${JSON.stringify(fields)}`);
        return { summary: addresses.summary, processes, warnings: texts };
      }
      default:
        return await addresses[request.do]() ?? null;
    }
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
