/**
 * Determines the features of a host's iptables, for the modes that write its rules.
 *
 * @module
 */
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";
import { chooseIptables, type IptablesChoice } from "./iptables_variant.ts";
import { type Feature, NOT_PERMITTED, probeResult, RIGHTS } from "../probe/feature.ts";
import {
  attemptRules,
  type RuleFeature,
  ruleTrial,
  takesAllRules,
} from "../probe/iptables_trial.ts";
import { type Findings, tryFeatures } from "../probe/try_features.ts";
import type { ProbeDependencies } from "../probe/try_tool.ts";

/** The features of iptables that a mode needs. */
interface IptablesNeeds {
  readonly tables: readonly TableFeature[];
  readonly rules: readonly RuleFeature[];
  readonly signal?: AbortSignal | undefined;
  /** Whether tables may be created, because a mode is about to write to them. @default {false} */
  readonly mayAddTables?: boolean;
}

/** A table of iptables. */
export interface TableFeature extends Feature {
  readonly table: string;
}

const PROGRAMS: Feature = {
  feature: "iptables",
  required: true,
  lost: "No rule can be written",
  broughtBy: "install iptables 1.6.2 or newer (Debian package iptables), or name the folder that " +
    "has it by --tools-path",
};

/** The message of iptables-legacy without permission; it then asks the kernel for nothing. */
const LOCK_FILE = /can't open lock file/;
const LOCK_FILE_CURE = "it has to be the file of the host, and writable";

const WORDS = {
  IPv4: { destination: "192.0.2.1:80", address: "192.0.2.1", bits: "32" },
  IPv6: { destination: "[2001:db8::1]:80", address: "2001:db8::1", bits: "128" },
} as const;

/** Tests all features in both families. Throws only if the caller aborts. */
export async function probeIptables(
  dependencies: ProbeDependencies,
  needs: IptablesNeeds,
): Promise<readonly ProbeResult[]> {
  const { signal } = needs;
  const families = await Promise.all(IP_FAMILIES.map(async (family) => {
    const choice = await chooseIptables(dependencies, { family, signal });
    if (choice.programs === undefined) {
      return { rows: [probeResult(PROGRAMS, { reason: choice.problem, family })], refused: false };
    }
    return await probeFamily(dependencies, choice, needs);
  }));
  const rows = families.flatMap((each) => each.rows);
  if (!families.some(({ refused }) => refused)) return rows;
  return [...rows, probeResult(RIGHTS, { reason: NOT_PERMITTED })];
}

/** Tests all features with the chosen programs. Throws only if the caller aborts. */
export async function probeChosenIptables(
  dependencies: ProbeDependencies,
  choice: IptablesChoice,
  needs: IptablesNeeds,
): Promise<readonly ProbeResult[]> {
  const { rows, refused } = await probeFamily(dependencies, choice, needs);
  return refused ? [...rows, probeResult(RIGHTS, { reason: NOT_PERMITTED })] : rows;
}

const NOTHING_MISSING: Findings<RuleFeature> = { reasons: new Map(), notPermitted: false };

interface FamilyRows {
  readonly rows: readonly ProbeResult[];
  /** Whether the user has no permission for the test. */
  readonly refused: boolean;
}

async function probeFamily(
  dependencies: ProbeDependencies,
  { family, programs, reason }: IptablesChoice,
  { tables, rules, signal, mayAddTables = false }: IptablesNeeds,
): Promise<FamilyRows> {
  const { variant, restore, version } = programs;
  const detail = `${restore} ${version}; ${reason}`;
  const rows = [probeResult(PROGRAMS, { detail, family })];
  const groups = tables.map((row) => ({
    ...{ row, table: row.table },
    trials: rules.filter(({ table }) => table === row.table)
      .map((rule) => ruleTrial({ ...rule, rule: filled(rule.rule, family) })),
  }));
  const scratch = { variant, restore, signal };
  // The usual machine lacks nothing. The tools of legacy create every table that they are given.
  const takesAll = (mayAddTables || variant === "legacy") &&
    await takesAllRules(dependencies, scratch, groups);
  for (const { row, table, trials } of groups) {
    const findings = takesAll ? NOTHING_MISSING : await tryFeatures(
      trials,
      (some) => attemptRules(dependencies, { ...scratch, table }, some),
    );
    if (findings.notPermitted) return { rows, refused: true };
    rows.push(...tableRows(row, { findings, trials, family }));
  }
  return { rows, refused: false };
}

/** A table that is missing says it all: its matches and targets could not be tried. */
function tableRows(
  row: TableFeature,
  { findings: { base, reasons, isLate }, trials, family }: {
    readonly findings: Findings<RuleFeature>;
    readonly trials: readonly { readonly row: RuleFeature }[];
    readonly family: IpFamily;
  },
): readonly ProbeResult[] {
  if (base !== undefined) {
    const cure = LOCK_FILE.test(base) ? LOCK_FILE_CURE : undefined;
    return [probeResult(row, { reason: base, family, cure, isLate })];
  }
  const tried = trials.map((trial) =>
    probeResult(trial.row, { reason: reasons.get(trial.row), family })
  );
  return [probeResult(row, { family }), ...tried];
}

function filled(rule: string, family: IpFamily): string {
  const words: Readonly<Record<string, string>> = WORDS[family];
  return rule.replace(/\{(\w+)\}/g, (_, name) => words[name] ?? "");
}
