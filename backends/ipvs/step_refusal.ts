/**
 * A tool that did not take a line of its input, and for which ServicePorts that line was.
 *
 * @module
 */
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { chainLine } from "../netfilter/iptables/iptables_objects.ts";
import { FROM_CLUSTER } from "./base_rules.ts";
import { DEVICE } from "./diff.ts";
import { SET_IDS, setName } from "./ipset_table.ts";
import { scratchName } from "../netfilter/ipset/ipset_text.ts";
import type { IpvsLayout } from "./layout.ts";
import { renderService } from "./render_service.ts";
import type { ServiceParts } from "./service_frontend.ts";
import type { IpvsStep } from "./steps.ts";
import type { ServerKey } from "./virtual_server.ts";

/** What is known of a refusal. */
interface RefusalDetails extends ErrorOptions {
  readonly step: IpvsStep;
  /** The line that the tool names, from 1. `ipvsadm` names none. */
  readonly line?: number | undefined;
  /** Lines of complaint: `ipvsadm` writes one for each operation that the kernel refuses. */
  readonly complaints: number;
  /** Virtual servers that are not as they were to be afterwards, in the order of the input. */
  readonly servers?: readonly ServerKey[];
}

/** The message says which tool, which line and why. How much of the rest was done is unknown. */
export class StepRefusal extends Error {
  override name = "StepRefusal";
  readonly details: RefusalDetails;

  constructor(message: string, details: RefusalDetails) {
    super(message, { cause: details.cause });
    this.details = details;
  }
}

/** ServicePorts between two pauses. */
const PLANS_PER_STEP = 64;

/**
 * The ServicePorts that want what was refused, found in short steps; none for what they all share, and
 * for what was to go.
 */
export function* blamedServices(
  { details }: StepRefusal,
  layout: IpvsLayout,
): Generator<void, readonly ServicePortKey[]> {
  if (details.step.tool === "ipvsadm") return ownersOfServers(details, layout);
  const wants = testFor(details, layout);
  if (wants === undefined) return [];
  return yield* ownersWhere(layout, wants);
}

function* ownersWhere(
  layout: IpvsLayout,
  wants: (parts: ServiceParts) => boolean,
): Generator<void, readonly ServicePortKey[]> {
  const found: ServicePortKey[] = [];
  let count = 0;
  for (const key of layout.keys) {
    if (++count % PLANS_PER_STEP === 0) yield;
    const plan = layout.plan(key);
    if (plan && wants(renderService(plan, layout))) found.push(key);
  }
  return found;
}

/**
 * iptables-legacy names no line where it is the kernel that refuses: what was added to rules that the
 * kernel had taken is to blame. None where the chain was written as a whole.
 */
export function* ownersOfAddedRules(
  { details: { step, line = 0 } }: StepRefusal,
  layout: IpvsLayout,
): Generator<void, readonly ServicePortKey[]> {
  if (step.tool !== "iptables" || step.lines[line - 1] !== "COMMIT") return [];
  if (step.lines.includes(chainLine(FROM_CLUSTER))) return [];
  const prefix = `-A ${FROM_CLUSTER} `;
  const added = step.lines.slice(step.lines.lastIndexOf("*nat", line - 1), line)
    .filter((each) => each.startsWith(prefix)).map((each) => each.slice(prefix.length));
  const rules = new Set(added);
  return yield* ownersWhere(
    layout,
    ({ fronts }) => fronts.some(({ rule }) => rule !== undefined && rules.has(rule)),
  );
}

/**
 * What is not as wanted was refused, or comes behind a line at which the program gave up: then there
 * are fewer complaints than such servers, and the first of them are to blame.
 */
function ownersOfServers(
  { complaints, servers = [] }: RefusalDetails,
  layout: IpvsLayout,
): readonly ServicePortKey[] {
  const owners = servers.map((key) => layout.server(key)?.owner);
  const known = owners.filter((owner) => owner !== undefined);
  return [...new Set(known.slice(0, Math.max(1, complaints)))];
}

/** Whether a ServicePort wants what a line adds; `undefined` = the line has no owner. */
function testFor(
  { step, line }: RefusalDetails,
  layout: IpvsLayout,
): ((parts: ServiceParts) => boolean) | undefined {
  if (step.tool === "ipvsadm" || line === undefined) return undefined;
  const text = step.lines[line - 1] ?? "";
  const [verb, name = "", value = ""] = text.split(" ");
  switch (step.tool) {
    case "iptables": {
      const prefix = `-A ${FROM_CLUSTER} `;
      if (!text.startsWith(prefix)) return undefined;
      return ({ fronts }) => fronts.some(({ rule }) => rule === text.slice(prefix.length));
    }
    case "ip": {
      if (verb !== "addr" || name !== "replace" || !text.endsWith(` ${DEVICE}`)) return undefined;
      const address = value.replace(/\/\d+$/, "");
      return ({ fronts }) => fronts.some(({ bound }) => bound === address);
    }
    case "ipset":
      return verb === "add" ? testForEntry({ name, value }, layout) : undefined;
  }
}

function testForEntry(
  { name, value }: { readonly name: string; readonly value: string },
  { options: { family } }: IpvsLayout,
): ((parts: ServiceParts) => boolean) | undefined {
  // Two of IPv6 have one name as scratch sets, where it is cut.
  const ids = SET_IDS.filter((each) => {
    const own = setName(each, family);
    return name === own || name === scratchName(own);
  });
  if (ids.includes("IPVS-IPS")) return ({ fronts }) => fronts.some(({ bound }) => bound === value);
  return ({ fronts, entries }) =>
    [...entries, ...fronts.flatMap((front) => front.entries)]
      .some(([set, entry]) => ids.includes(set) && entry === value);
}
