/**
 * The objects of this mode for the engine, by kind:
 *
 * - `device`, and each `address` on it
 * - `set`; objects of any other kind than these are the entries of the set of this name
 * - `chain` and `jump` of iptables; each `rule` of a single Service in {@linkcode FROM_CLUSTER}
 * - `server`, and each `real` server of it
 * - `pod`: an address of a Service in a pod of this node, for direct server return
 *
 * @module
 */
import type {
  Change,
  KernelObject,
  ObjectChange,
  ObjectName,
} from "../../lib/engine/reconciler.ts";
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { POD_TUNNELS } from "../iproute/pod_tunnels.ts";
import { ruleLines, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { compareChain, normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { normalOptions } from "../netfilter/ipset/ipset_text.ts";
import { BASE_JUMPS, baseChains, type BaseRuleContext, FROM_CLUSTER } from "./base_rules.ts";
import { SET_IDS, type SetId, setName, setOptions } from "./ipset_table.ts";
import { podsOf } from "./dsr.ts";
import { type RenderInputs, renderService, type ServiceFrontend } from "./render_service.ts";
import {
  describeServer,
  type RealServerKey,
  type ServerKey,
} from "../netfilter/virtual_servers.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../lib/proxy/service_port_name.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane.ts";

/** The text of a real server that gets connections. */
const WEIGHT_1 = "weight 1";
/** The text of a real server that gets no new ones. */
export const WEIGHT_0 = "weight 0";
/** Begins the text of a real server that gets packets by a tunnel. */
export const TUNNELLED = "tunnel, ";

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
    "DSR",
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
  /** Pods of this node that get no packets by tunnels, because they can't be set up. @default {none} */
  readonly lostPods?: ReadonlySet<IpAddress> | undefined;
}

/** The objects of a ServicePort. */
export function* serviceObjects(item: ServiceItem): Generator<KernelObject> {
  const { plan, inputs, reals, lostPods } = item;
  const { family } = inputs.options;
  const { frontends, entries } = renderService(plan, inputs, lostPods);
  for (const frontend of frontends) {
    const { address, bound, endpoints, entries, isTunnelled, rule, server, setup } = frontend;
    for (const [id, entry] of entries) yield entryObject(id, entry, family);
    if (bound !== undefined) {
      yield entryObject("IPVS-IPS", bound, family);
      yield { kind: "address", name: bound, text: "", isShared: true };
    }
    if (rule !== undefined) yield { kind: "rule", name: normalRule(rule), text: rule };
    yield { kind: "server", name: server, text: setup };
    for (const key of reals?.get(server) ?? endpoints.values().map(({ key }) => key)) {
      yield { kind: "real", name: realName(server, key), text: textOfReals(frontend) };
    }
    for (const pod of isTunnelled ? podsOf(plan) : []) {
      if (lostPods?.has(pod)) continue;
      yield { kind: "pod", name: `${pod} ${address}`, text: "", isShared: true };
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

/** The text of the real servers of a frontend that get connections. */
export function textOfReals({ isTunnelled }: Pick<ServiceFrontend, "isTunnelled">): string {
  return isTunnelled ? `${TUNNELLED}${WEIGHT_1}` : WEIGHT_1;
}

/** The line that adds or edits a real server, for `ipvsadm -R`. `text`: that of the object. */
export function realLine(
  verb: "-a" | "-e",
  server: ServerKey,
  real: string,
  text: string,
): string {
  const forwarding = text.startsWith(TUNNELLED) ? "-i" : "-m";
  return `${verb} ${server} -r ${real} ${forwarding} -w ${text.endsWith(WEIGHT_0) ? 0 : 1}`;
}

/** Whether an object is an entry of a set. */
function isEntry({ kind }: Pick<ObjectName, "kind">): boolean {
  return kind.startsWith("KUBE-");
}

/** Changes of frontends and real servers of one Service in a write. */
const MOST_OF_SERVICE = 512;
/** Beyond that, those of all Services together. */
const MOST_TOGETHER = 4_096;

/**
 * What large Services may change in one write, so that no other change waits for them. The next write
 * continues, and begins with the other changes.
 */
export class WriteRoom {
  /** ServicePorts that are not complete. */
  readonly waiting = new Set<ServicePortKey>();
  readonly #taken = new Map<ServiceKey, number>();
  #together = MOST_TOGETHER;

  /**
   * Returns as much of a ServicePort as there is room for; `applied`, if it is new and there is none.
   * All frontends of one that is served are written. Removals come first at servers that have more
   * endpoints without them, since they may be dead. Elsewhere additions precede removals.
   */
  fit(item: ServiceItem, applied: ServiceItem | undefined): ServiceItem | undefined {
    const { key, name } = item.plan;
    const service = serviceKey(name);
    const wait = (part: ServiceItem | undefined) => {
      this.waiting.add(key);
      return part;
    };
    if (applied === undefined && this.#roomOf(service) === 0) return wait(undefined);
    const there = applied && realsOf(applied);
    const wanted = realsOf(item);
    // Later writes of a plan find its frontends.
    if (applied?.plan !== item.plan) this.#take(service, wanted.size);
    const parts = [...wanted].map(([server, keys]) => {
      const before = there?.get(server) ?? new Set();
      const missing = [...keys.difference(before)];
      const unused = [...before.difference(keys)];
      return { server, before, missing, unused, added: 0, removed: 0 };
    });
    const upTo = (count: number, atLeast = 0) => {
      const granted = Math.min(count, Math.max(this.#roomOf(service), atLeast));
      this.#take(service, granted);
      return granted;
    };
    for (const part of parts) {
      const { before, missing, unused } = part;
      const kept = before.size - unused.length;
      // A new server has an endpoint from the beginning.
      if (kept === 0) part.added = upTo(Math.min(1, missing.length), before.size === 0 ? 1 : 0);
      if (kept + part.added >= unused.length) part.removed = upTo(unused.length);
    }
    for (const part of parts) {
      const { missing, unused } = part;
      part.added += upTo(missing.length - part.added);
      if (part.added === missing.length) part.removed += upTo(unused.length - part.removed);
    }
    const hasAll = parts.every(({ missing, unused, added, removed }) =>
      added === missing.length && removed === unused.length
    );
    if (hasAll) return item;
    const reals = parts.map(({ server, before, missing, unused, added, removed }) => {
      const more = new Set(missing.slice(0, added));
      const fewer = new Set(unused.slice(0, removed));
      // What stays the same set is not compared.
      const after = more.size + fewer.size === 0 ? before : before.union(more).difference(fewer);
      return [server, after] as const;
    });
    return wait({ ...item, reals: new Map(reals) });
  }

  #roomOf(service: ServiceKey): number {
    const taken = this.#taken.get(service) ?? 0;
    return Math.max(0, MOST_OF_SERVICE - taken) + Math.max(0, this.#together);
  }

  #take(service: ServiceKey, count: number): void {
    const taken = this.#taken.get(service) ?? 0;
    this.#taken.set(service, taken + count);
    this.#together -= Math.max(0, taken + count - Math.max(taken, MOST_OF_SERVICE));
  }
}

/** The changes between two parts of a ServicePort by the same plan. */
export function* realChanges(applied: ServiceItem, item: ServiceItem): Generator<ObjectChange> {
  const there = realsOf(applied);
  const texts = new Map(
    renderService(item.plan, item.inputs).frontends.map((each) => [
      each.server,
      textOfReals(each),
    ]),
  );
  for (const [server, keys] of realsOf(item)) {
    const before = there.get(server);
    const text = texts.get(server as ServerKey);
    if (before === undefined || before === keys) continue;
    for (const key of keys.difference(before)) {
      yield { kind: "real", name: realName(server, key), before: undefined, after: text };
    }
    for (const key of before.difference(keys)) {
      yield { kind: "real", name: realName(server, key), before: text, after: undefined };
    }
  }
}

/** The real servers by virtual server. */
function realsOf(
  { plan, inputs, reals, lostPods }: ServiceItem,
): ReadonlyMap<string, ReadonlySet<string>> {
  if (reals) return reals;
  // Most frontends have the same endpoints.
  const sets = new Map<unknown, ReadonlySet<string>>();
  return new Map(
    renderService(plan, inputs, lostPods).frontends.map(({ endpoints, server }) => [
      server,
      sets.getOrInsertComputed(endpoints, () => new Set(endpoints.map(({ key }) => key))),
    ]),
  );
}

type IpvsChange = Change<ServicePortKey>;
type Words = Omit<DataPlaneDifference, "kind"> & Partial<Pick<DataPlaneDifference, "kind">>;

/**
 * The differences in words. `ownersOf`: the ServicePorts that need objects which several may need, by
 * kind and name.
 */
export async function ipvsDifferences(
  changes: readonly IpvsChange[],
  family: IpFamily,
  ownersOf: (
    objects: Iterable<ObjectName>,
  ) => Promise<ReadonlyMap<string, readonly ServicePortKey[]>>,
): Promise<readonly DataPlaneDifference[]> {
  const isMissing = ({ before }: IpvsChange) => before === undefined;
  const isExtra = ({ after }: IpvsChange) => after === undefined;
  const named = new Set(
    changes.filter(({ kind }) => kind === "set").map(({ name }) => name),
  );
  // The content of a container is not listed one by one.
  const servers = new Set(
    changes.filter((change) => change.kind === "server" && (isMissing(change) || isExtra(change)))
      .map(({ name }) => name),
  );
  const isRewritten = changes.some(({ kind, name }) =>
    kind === "chain" && name === `nat ${FROM_CLUSTER}`
  );
  const hasNoDevice = changes.some(({ kind }) => kind === "device");
  const listed = changes.filter(({ kind, name }) =>
    !named.has(kind) && !(kind === "address" && hasNoDevice) && !(kind === "rule" && isRewritten) &&
    !(kind === "real" && servers.has(readRealName(name)[0]))
  );
  const owners = await ownersOf(listed.flatMap((change) => ownedBy(change) ?? []));
  const rules = changes.flatMap(({ kind, after }) => kind === "rule" ? after ?? [] : []);
  return listed.flatMap((change) => {
    const kind = isExtra(change) ? "extra" : isMissing(change) ? "missing" : "altered";
    const by = ownedBy(change);
    const owner = change.owner ?? (by && owners.get(`${by.kind} ${by.name}`)?.[0]);
    const key = owner === undefined ? {} : { key: owner };
    return inWords(family, change, rules).map((words): DataPlaneDifference => ({
      kind,
      ...words,
      ...key,
    }));
  });
}

/** The object whose owner a change has, if the engine does not know it. */
function ownedBy({ kind, name, after, owner }: IpvsChange): ObjectName | undefined {
  if (owner !== undefined) return undefined;
  if (after !== undefined) {
    return isEntry({ kind }) || kind === "address" || kind === "pod" ? { kind, name } : undefined;
  }
  return kind === "real" ? { kind: "server", name: readRealName(name)[0] } : undefined;
}

function inWords(
  family: IpFamily,
  { kind, name, before, after }: IpvsChange,
  rulesOfServices: readonly string[],
): readonly Words[] {
  const texts = (text: (value: string) => string) => ({
    ...(after !== undefined && { wanted: text(after) }),
    ...(before !== undefined && { found: text(before) }),
  });
  switch (kind) {
    case "device":
      return [{ object: "device", name, ...texts((text) => text) }];
    case "set": {
      const id = SET_IDS.find((each) => setName(each, family) === name);
      const wanted = id === undefined ? "" : setOptions(id, family);
      return [{ object: "ip set", name, ...texts((text) => text === after ? wanted : text) }];
    }
    case "address":
      return [{ object: "address", name, ...texts(() => `${name} dev ${IPVS_DEVICE}`) }];
    case "pod": {
      const [pod, address] = name.split(" ");
      return [{
        object: "address",
        name: `${address} in pod ${pod}`,
        ...texts(() => `${address} dev ${POD_TUNNELS[family]}`),
      }];
    }
    case "jump": {
      const [, place = "", rule = ""] = /^(\S+ \S+) (.*)$/.exec(name) ?? [];
      return [{ object: "jump", name: place, ...texts(() => rule) }];
    }
    case "chain": {
      const [table = "", chain = ""] = name.split(" ");
      const found = before === undefined ? undefined : ruleLines(before);
      const own = chain === FROM_CLUSTER ? rulesOfServices : [];
      return compareChain(`${table} ${chain}`, [...ruleLines(after), ...own], found);
    }
    case "rule":
      return [{ object: "rule", name: `nat ${FROM_CLUSTER}`, ...texts((text) => text) }];
    case "server": {
      // The kernel does not list all of a setup.
      const found = after === undefined ? name : "another scheduler or persistence";
      return [{
        object: "virtual server",
        name: describeServer(name as ServerKey),
        ...texts((text) => text === before ? found : text),
      }];
    }
    case "real": {
      const [server, real] = readRealName(name);
      const place = `${describeServer(server)} -> ${real}`;
      return [{ object: "real server", name: place, ...texts((text) => text) }];
    }
    default:
      return [{ object: "ip set entry", name: `${kind} ${name}`, ...texts(() => name) }];
  }
}
