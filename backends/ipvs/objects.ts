/**
 * The objects of this mode for the engine, by kind:
 *
 * - `device`, and each `address` on it
 * - `set`; objects of any other kind than these are the entries of the set of this name
 * - `chain` and `jump` of iptables; each `rule` of a single Service in {@linkcode FROM_CLUSTER}
 * - `server`, and each `real` server of it
 *
 * @module
 */
import type { KernelObject, ObjectName } from "../../lib/engine/reconciler.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { normalOptions } from "../netfilter/ipset/ipset_text.ts";
import { BASE_JUMPS, baseChains, type BaseRuleContext } from "./base_rules.ts";
import { SET_IDS, type SetId, setName, setOptions } from "./ipset_table.ts";
import { type RenderInputs, renderService } from "./render_service.ts";
import type { RealServerKey, ServerKey } from "../netfilter/virtual_servers.ts";

/** The text of a real server that gets connections. */
export const WEIGHT_1 = "weight 1";
/** The text of a real server that gets no new ones. */
export const WEIGHT_0 = "weight 0";

/** Sets whose entries several frontends may need. */
const SHARED_SETS: ReadonlySet<SetId> = new Set(
  [
    "LOOP-BACK",
    "NODE-PORT-TCP",
    "NODE-PORT-LOCAL-TCP",
    "NODE-PORT-UDP",
    "NODE-PORT-LOCAL-UDP",
    "HEALTH-CHECK-NODE-PORT",
    "LOAD-BALANCER-SOURCE-CIDR",
    "IPVS-IPS",
    "NODE-PORT-IPS",
  ] as const,
);

/** The objects that belong to no Service. */
export function* fixedObjects(context: BaseRuleContext): Generator<KernelObject> {
  const { family } = context.options;
  yield { kind: "device", name: IPVS_DEVICE, text: "type dummy" };
  for (const id of SET_IDS) {
    yield { kind: "set", name: setName(id, family), text: normalOptions(setOptions(id, family)) };
  }
  for (const { table, name, rules } of baseChains(context)) {
    yield { kind: "chain", name: `${table} ${name}`, text: rules.map(ruleText).join("\n") };
  }
  for (const { table, from, rule } of BASE_JUMPS) {
    yield { kind: "jump", name: `${table} ${from} ${ruleText(rule)}`, text: "" };
  }
}

/** A ServicePort as it is served. */
export interface ServiceItem {
  readonly plan: ServicePlan;
  readonly inputs: RenderInputs;
  /** The real servers that it has for now, by virtual server. @default {those of the plan} */
  readonly reals?: ReadonlyMap<string, ReadonlySet<string>>;
}

/** The objects of a ServicePort. */
export function* serviceObjects({ plan, inputs, reals }: ServiceItem): Generator<KernelObject> {
  const { family } = inputs.options;
  const { frontends, entries } = renderService(plan, inputs);
  for (const { bound, endpoints, entries, rule, server, setup } of frontends) {
    for (const [id, entry] of entries) yield entryObject(id, entry, family);
    if (bound !== undefined) {
      yield entryObject("IPVS-IPS", bound, family);
      yield { kind: "address", name: bound, text: "", isShared: true };
    }
    if (rule !== undefined) yield { kind: "rule", name: normalRule(rule), text: rule };
    yield { kind: "server", name: server, text: setup };
    for (const key of reals?.get(server) ?? endpoints.values().map(({ key }) => key)) {
      yield { kind: "real", name: realName(server, key), text: WEIGHT_1 };
    }
  }
  for (const [id, entry] of entries) yield entryObject(id, entry, family);
}

function entryObject(id: SetId, name: string, family: IpFamily): KernelObject {
  const kind = setName(id, family);
  return SHARED_SETS.has(id) ? { kind, name, text: "", isShared: true } : { kind, name, text: "" };
}

/** The name of a real server as an object. */
export function realName(server: string, real: string): string {
  return `${server} ${real}`;
}

/** The virtual and the real server of a name. */
export function readRealName(name: string): readonly [ServerKey, RealServerKey] {
  const at = name.lastIndexOf(" ");
  return [name.slice(0, at) as ServerKey, name.slice(at + 1) as RealServerKey];
}

/** The line that adds or edits a real server, for `ipvsadm -R`. */
export function realLine(
  verb: "-a" | "-e",
  server: ServerKey,
  real: string,
  weight: 0 | 1,
): string {
  return `${verb} ${server} -r ${real} -m -w ${weight}`;
}

/** Whether an object is an entry of a set. */
export function isEntry({ kind }: Pick<ObjectName, "kind">): boolean {
  return kind.startsWith("KUBE-");
}
