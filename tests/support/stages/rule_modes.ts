/**
 * The modes whose rules the kernel keeps when the process ends. The same tests apply to all of
 * them.
 */
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import {
  IPTABLES_VARIANTS,
  iptablesRequirements,
  type IptablesVariant,
  leaveKubeletHint,
  ruleState,
} from "./iptables_tools.ts";
import { type Namespace, netnsRequirements } from "./netns.ts";
import { nftablesState } from "./nftables_tools.ts";
import { program, type Requirement } from "../requirement.ts";

/** One of them. */
export interface RuleMode {
  /** Its name in names of tests. */
  readonly name: string;
  readonly mode: BackendMode;
  /** Flags of kube-relay. */
  readonly args: readonly string[];
  readonly requirements: () => readonly Requirement[];
  /** Prepares the node as a kubelet does for this mode. */
  readonly prepare: (node: Namespace) => Promise<void>;
  /** Its rules of both families, for comparisons over time or between nodes. */
  readonly state: (node: Namespace) => Promise<unknown>;
  /** The variant of iptables that other software uses on its node. */
  readonly othersUse: IptablesVariant;
  /** Words of its log, each of a later moment of a start, before the first sync has ended. */
  readonly startWords: readonly string[];
}

function iptables(variant: IptablesVariant): RuleMode {
  return {
    name: `iptables mode (${variant})`,
    mode: "iptables",
    args: ["--mode=iptables", "--iptables-sync-period=1s"],
    requirements: () => [...netnsRequirements(), ...iptablesRequirements(variant)],
    prepare: (node) => leaveKubeletHint(node, variant),
    state: (node) => ruleState(node, variant),
    othersUse: variant,
    startWords: ["Starting", "Chose the variant", "Entered phase"],
  };
}

/** nftables mode. */
export const NFTABLES_MODE: RuleMode = {
  name: "nftables mode",
  mode: "nftables",
  args: ["--mode=nftables", "--iptables-sync-period=1s"],
  requirements: () => [...netnsRequirements(), program("nft")],
  prepare: () => Promise.resolve(),
  state: nftablesState,
  othersUse: "nft",
  startWords: ["Starting", "Entered phase"],
};

/** Those of iptables by variant. */
export const IPTABLES_MODES: Readonly<Record<IptablesVariant, RuleMode>> = {
  nft: iptables("nft"),
  legacy: iptables("legacy"),
};

/** All of them. */
export const RULE_MODES: readonly RuleMode[] = [
  ...IPTABLES_VARIANTS.map((variant) => IPTABLES_MODES[variant]),
  NFTABLES_MODE,
];
