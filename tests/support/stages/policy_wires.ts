/** The data planes of NetworkPolicy, each with the mode of Services that uses the same tools. */
import { renderText as renderIptablesText } from "../../../backends/iptables/render.ts";
import { renderText as renderNftablesText } from "../../../backends/nftables/render.ts";
import { POLICY_BACKENDS } from "../../../backends/policy/mod.ts";
import { defaultRenderOptions as iptablesOptions } from "../builders/iptables_render_options.ts";
import { defaultRenderOptions as nftablesOptions } from "../builders/nftables_render_options.ts";
import { isMissing, program, type Requirement } from "../requirement.ts";
import {
  IPTABLES_VARIANTS,
  iptablesRequirements,
  type IptablesVariant,
  leaveKubeletHint,
  restoreRules,
} from "./iptables_tools.ts";
import { type Namespace, netnsRequirements } from "./netns.ts";
import { loadNftables } from "./nftables_tools.ts";
import type { PolicyCaseNodes } from "./policy_case_scene.ts";

/** A data plane under test. */
export interface PolicyWire {
  readonly name: string;
  /** Whether this machine lacks a requirement. */
  readonly ignore: boolean;
  readonly nodes: PolicyCaseNodes;
  /** Lets everything denied pass on a node, in IPv4, as a fault would. */
  readonly openDenials: (node: Namespace) => Promise<void>;
}

const NFTABLES: PolicyCaseNodes = {
  make: POLICY_BACKENDS.nftables,
  loadServices: (node, family, plan) =>
    loadNftables(node, [...renderNftablesText(plan, nftablesOptions(family))].join("")),
};

function iptables(variant: IptablesVariant): PolicyCaseNodes {
  return {
    make: POLICY_BACKENDS.iptables,
    prepare: (node) => leaveKubeletHint(node, variant),
    loadServices: (node, family, plan) => {
      const tool = `${family === "IPv4" ? "iptables" : "ip6tables"}-${variant}`;
      const text = [...renderIptablesText(plan, iptablesOptions(family))].join("");
      return restoreRules(node, tool, text);
    },
  };
}

function wire(
  { requirements, ...rest }: Omit<PolicyWire, "ignore"> & {
    readonly requirements: readonly Requirement[];
  },
): PolicyWire {
  const what = `cases of NetworkPolicy by ${rest.name} with real packets`;
  return { ...rest, ignore: isMissing(what, [...netnsRequirements(), ...requirements]) };
}

/** All of them. */
export const POLICY_WIRES: readonly PolicyWire[] = [
  wire({
    name: "nftables",
    nodes: NFTABLES,
    openDenials: (node) => loadNftables(node, "insert rule ip kube-relay-policy deny accept\n"),
    requirements: [program("nft")],
  }),
  ...IPTABLES_VARIANTS.map((variant) =>
    wire({
      name: `iptables-${variant}`,
      nodes: iptables(variant),
      openDenials: (node) => {
        const text = "*filter\n-I KUBE-RELAY-POLICY-DENY -j ACCEPT\nCOMMIT\n";
        return restoreRules(node, `iptables-${variant}`, text);
      },
      requirements: [...iptablesRequirements(variant), program("ipset")],
    })
  ),
];
