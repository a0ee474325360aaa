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

interface RefusalDetails extends ErrorOptions {
  readonly step: IpvsStep;
  /** The line that the tool names, from 1. `ipvsadm` names none. */
  readonly line?: number | undefined;
  /** Error lines: `ipvsadm` writes one for each operation that the kernel refuses. */
  readonly complaints: number;
  /** Virtual servers that differ from the desired ones afterwards, in the order of the input. */
  readonly servers?: readonly ServerKey[];
}

/**
 * A refused line of a tool's input. The message contains the tool, the line and the reason. How
 * much of the rest was done is unknown.
 */
export class StepRefusal extends Error {
  override name = "StepRefusal";
  readonly details: RefusalDetails;

  constructor(message: string, details: RefusalDetails) {
    super(message, { cause: details.cause });
    this.details = details;
  }
}

/**
 * Returns the ServicePorts that need the refused objects, in short steps; none for shared objects
 * and for removals.
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
  for (const key of layout.keys) {
    yield;
    const plan = layout.plan(key);
    if (plan && wants(renderService(plan, layout))) found.push(key);
  }
  return found;
}

/**
 * iptables-legacy names no line that the kernel refuses, so rules added to accepted ones are
 * blamed. None if the chain was written as a whole.
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
    ({ frontends }) => frontends.some(({ rule }) => rule !== undefined && rules.has(rule)),
  );
}

/**
 * Blames servers that differ from the desired state: they were refused, or come after a line at
 * which the program stopped. In that case there are fewer messages than servers, and the first ones
 * are blamed.
 */
function ownersOfServers(
  { complaints, servers = [] }: RefusalDetails,
  layout: IpvsLayout,
): readonly ServicePortKey[] {
  const owners = servers.map((key) => layout.server(key)?.owner);
  const known = owners.filter((owner) => owner !== undefined);
  return [...new Set(known.slice(0, Math.max(1, complaints)))];
}

/** Returns a test for ServicePorts that need the object of a line; `undefined` = it has no owner. */
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
      return ({ frontends }) => frontends.some(({ rule }) => rule === text.slice(prefix.length));
    }
    case "ip": {
      if (verb !== "addr" || name !== "replace" || !text.endsWith(` ${DEVICE}`)) return undefined;
      const address = value.replace(/\/\d+$/, "");
      return ({ frontends }) => frontends.some(({ bound }) => bound === address);
    }
    case "ipset":
      return verb === "add" ? testForEntry({ name, value }, layout) : undefined;
  }
}

function testForEntry(
  { name, value }: { readonly name: string; readonly value: string },
  { options: { family } }: IpvsLayout,
): ((parts: ServiceParts) => boolean) | undefined {
  // The names of scratch sets are cut, so two sets of IPv6 have the same one.
  const ids = SET_IDS.filter((each) => {
    const own = setName(each, family);
    return name === own || name === scratchName(own);
  });
  if (ids.includes("IPVS-IPS")) {
    return ({ frontends }) => frontends.some(({ bound }) => bound === value);
  }
  return ({ frontends, entries }) =>
    [...entries, ...frontends.flatMap((frontend) => frontend.entries)]
      .some(([set, entry]) => ids.includes(set) && entry === value);
}
