import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { CleanupReport } from "../../lib/controller/data_plane.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import { NftError } from "../netfilter/nft/nft_error.ts";
import { deletionText } from "../netfilter/nft/nft_objects.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { servicesTable } from "./containers.ts";
import { countingTable } from "./counting_table.ts";

interface OwnTableRemoval {
  readonly family: IpFamily;
  /** Only reports what would be done. */
  readonly dryRun: boolean;
}

/** Takes the tables of a family away, which is all that this mode ever wrote. */
export async function removeOwnTable(
  edges: { readonly commands: CommandRunner },
  { family, dryRun }: OwnTableRemoval,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, { dryRun });
  for (const table of [servicesTable(family), countingTable(family)]) {
    const name = `table ${table.family} ${table.name}`;
    try {
      if (!await new NftRunner(edges, table).isThere()) continue;
    } catch (error) {
      if (!(error instanceof NftError)) throw error;
      // Without the program, this mode never ran here.
      const isMissing = /ENOENT|not found/i.test(messageOf(error));
      if (!isMissing) run.unseen(name, error.message);
      break;
    }
    await run.do(name, {
      command: ["nft", "-f", "-"],
      input: () => [deletionText(table)],
      removes: [`${name} (nftables)`],
    });
  }
  return run.report();
}
