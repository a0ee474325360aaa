/**
 * Finds out of the machine what rules depend on.
 *
 * @module
 */
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { createSysctl } from "../../lib/os/sysctl.ts";
import type { IptablesChoice } from "../netfilter/iptables_variant.ts";
import { probeRenderFeatures } from "./probe.ts";
import type { IptablesFeatures } from "./render_options.ts";

/** What was found. */
interface IptablesFacts {
  readonly features: IptablesFeatures;
  readonly beLiberal: boolean;
}

const BE_LIBERAL = "net.netfilter.nf_conntrack_tcp_be_liberal";

/** Tries what rules may use, and reads the setting that one of them depends on. */
export async function findFacts(
  { commands }: { readonly commands: CommandRunner },
  choice: IptablesChoice,
): Promise<IptablesFacts> {
  const features = await probeRenderFeatures({ commands }, choice);
  const { values } = await createSysctl(commands).read([BE_LIBERAL]);
  return { features, beLiberal: values.get(BE_LIBERAL) === "1" };
}
