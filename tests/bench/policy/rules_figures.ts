/**
 * The figures of rules, as the program that measures them prints them.
 *
 * @module
 */
/** The two programs that are called `iptables`. */
export type IptablesVariant = "nft" | "legacy";

/** A tool of policies, with the variant of iptables. */
export type PolicyTool = "nftables" | IptablesVariant;

/** The tools as users know them. */
export const TOOL_NAMES: Readonly<Record<PolicyTool, string>> = {
  nftables: "nftables",
  nft: "iptables-nft",
  legacy: "iptables-legacy",
};

/** The cost of one step. */
export interface StepCost {
  /** Lines that the tools received. */
  readonly lines: number;
  readonly toolMs: number;
  readonly ownMs: number;
  readonly wallMs: number;
}

/** The request to the program. */
export interface RulesTask {
  readonly tool: PolicyTool;
  /** First syncs of each size, and events after each. */
  readonly loads: number;
  readonly events: number;
}

/** The events of pods. */
export const EVENT_KINDS = [
  "remote pod goes",
  "remote pod comes",
  "local pod goes",
  "local pod comes",
] as const;
export type EventKind = (typeof EVENT_KINDS)[number];

/** The figures of one number of policies. */
export interface SizeFigures {
  readonly policies: number;
  readonly loads: readonly StepCost[];
  readonly events: Readonly<Record<EventKind, readonly StepCost[]>>;
  /** Rules that the first packet to an isolated pod is compared with, on average. */
  readonly visitedRules: number;
}

/** The figures of one tool. */
export interface OwnFigures {
  readonly tool: PolicyTool;
  readonly sizes: readonly SizeFigures[];
  /** 2,000 policies for the pods of this node: first syncs, and changes of one policy. */
  readonly largest: {
    readonly loads: readonly StepCost[];
    readonly changes: readonly StepCost[];
  };
}
