/**
 * Compares virtual servers, sets, addresses and rules that were found with the desired ones,
 * object by object. Pure.
 *
 * Unused real servers of weight 0 are no difference: they wait for their connections to end.
 *
 * @module
 */
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { compareChain } from "../netfilter/iptables/compare_chain.ts";
import { type Chain, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import type { SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { type AppliedServers, OTHER_FORWARDING } from "./applied_servers.ts";
import { baseChains, FROM_CLUSTER } from "./base_rules.ts";
import { DEVICE, type KernelState } from "./diff.ts";
import { diffServers } from "./diff_servers.ts";
import { SET_IDS, setName, setOptions } from "./ipset_table.ts";
import type { SavedSet } from "../netfilter/ipset/ipset_text.ts";
import { type IpvsOperation, setupText } from "./ipvs_operation.ts";
import type { IpvsLayout } from "./layout.ts";
import { renderService } from "./render_service.ts";
import type { ServiceFrontend, SetEntry } from "./service_frontend.ts";
import { describeServer, type ServerKey } from "./virtual_server.ts";

/** A layout and servers that adopted the read, and the rest of what was read. */
interface IpvsComparisonInput {
  readonly layout: IpvsLayout;
  readonly servers: AppliedServers;
  readonly state: KernelState;
  readonly tables: SavedTables;
  readonly sets: ReadonlyMap<string, SavedSet>;
  /** Only these ServicePorts, and the shared objects. @default {all} */
  readonly keys?: ReadonlySet<ServicePortKey> | undefined;
}

/** Compares the kernel with the desired state, in short steps. */
export function* compareIpvs(
  input: IpvsComparisonInput,
): Generator<void, readonly DataPlaneDifference[]> {
  const { layout, keys } = input;
  const changes = yield* diffServers(layout, input.servers);
  const differences = [
    ...compareServers(input, changes.operations),
    ...yield* compareSets(input),
    ...yield* compareAddresses(input),
    ...compareRules(input),
  ];
  return differences.filter(({ key }) => key === undefined || keys === undefined || keys.has(key));
}

/** The chains that are not as they are wanted; rules of single Services are in no order. */
export function damagedChains(
  layout: IpvsLayout,
  tables: SavedTables,
): readonly { readonly chain: Chain; readonly differences: readonly DataPlaneDifference[] }[] {
  return baseChains(layout.ruleContext).map((chain) => {
    const { table, name } = chain;
    const there = tables[table].chains.get(name);
    const own = name === FROM_CLUSTER ? inFoundOrder(layout.rules.wanted, there ?? []) : [];
    const rules = chain.rules.map(ruleText).concat(own);
    return { chain, differences: compareChain({ table, name, rules }, there) };
  }).filter(({ differences }) => differences.length > 0);
}

function compareServers(
  { layout, servers }: IpvsComparisonInput,
  operations: readonly IpvsOperation[],
): readonly DataPlaneDifference[] {
  const fresh = new Set<ServerKey>();
  const differences: DataPlaneDifference[] = [];
  const note = (
    server: ServerKey,
    difference: Pick<DataPlaneDifference, "found" | "kind" | "object" | "wanted">,
    real = "",
  ) => {
    const owner = layout.server(server)?.owner;
    const name = describeServer(server) + (real === "" ? "" : ` -> ${real}`);
    differences.push({ name, ...(owner !== undefined && { key: owner }), ...difference });
  };
  for (const operation of operations) {
    switch (operation.kind) {
      case "addServer": {
        const { server } = operation;
        fresh.add(server.key);
        note(server.key, { object: "virtual server", kind: "missing", wanted: setupText(server) });
        break;
      }
      case "editServer": {
        const { key } = operation.server;
        const found = servers.get(key)?.setup ?? "another scheduler or persistence";
        const wanted = setupText(operation.server);
        note(key, { object: "virtual server", kind: "altered", wanted, found });
        break;
      }
      case "deleteServer":
        note(operation.key, { object: "virtual server", kind: "extra", found: operation.key });
        break;
      case "addReal":
      case "editReal":
      case "deleteReal":
        if (!fresh.has(operation.server)) noteReal(operation, servers, note);
    }
  }
  return differences;
}

function noteReal(
  operation: Extract<IpvsOperation, { readonly kind: "addReal" | "editReal" | "deleteReal" }>,
  servers: AppliedServers,
  note: (
    server: ServerKey,
    difference: Pick<DataPlaneDifference, "found" | "kind" | "object" | "wanted">,
    real: string,
  ) => void,
): void {
  const object = "real server";
  const { server } = operation;
  const real = operation.kind === "deleteReal" ? operation.key : operation.real.key;
  const weight = servers.get(server)?.reals.get(real) ?? 0;
  const found = weight === OTHER_FORWARDING ? "another forwarding" : `weight ${weight}`;
  if (operation.kind === "addReal") {
    return note(
      server,
      { object, kind: "missing", wanted: `weight ${operation.real.weight}` },
      real,
    );
  }
  // A server to be removed gets no new connections first.
  if (operation.kind === "deleteReal" || operation.real.weight === 0) {
    return note(server, { object, kind: "extra", found }, real);
  }
  const wanted = `weight ${operation.real.weight}`;
  note(server, { object, kind: "altered", wanted, found }, real);
}

function* compareSets(
  { layout, sets, state }: IpvsComparisonInput,
): Generator<void, readonly DataPlaneDifference[]> {
  const { family } = layout.options;
  const differences: DataPlaneDifference[] = [];
  const noted: { readonly set: string; readonly entry: string; readonly isMissing: boolean }[] = [];
  for (const id of SET_IDS) {
    const name = setName(id, family);
    const wanted = setOptions(id, family);
    if (state.missingSets.has(id)) {
      differences.push({ object: "ip set", name, kind: "missing", wanted });
    } else if (state.otherSets.has(id)) {
      const found = sets.get(name)?.options ?? "";
      differences.push({ object: "ip set", name, kind: "altered", wanted, found });
    } else {
      for (const entry of layout.sets[id].missing) {
        noted.push({ set: name, entry, isMissing: true });
      }
      for (const entry of layout.sets[id].stale) noted.push({ set: name, entry, isMissing: false });
    }
  }
  if (noted.length === 0) return differences;
  const owners = yield* ownersOfEntries(layout);
  for (const { set, entry, isMissing } of noted) {
    const key = owners.get(`${set} ${entry}`);
    differences.push({
      object: "ip set entry",
      name: `${set} ${entry}`,
      kind: isMissing ? "missing" : "extra",
      ...(key !== undefined && { key }),
      [isMissing ? "wanted" : "found"]: entry,
    });
  }
  return differences;
}

function* compareAddresses(
  { layout, state }: IpvsComparisonInput,
): Generator<void, readonly DataPlaneDifference[]> {
  if (!state.hasDevice) {
    return [{ object: "device", name: DEVICE, kind: "missing", wanted: "type dummy" }];
  }
  const { missing, stale } = layout.addresses;
  const on = (address: string) => `${address} dev ${DEVICE}`;
  const extra = stale.map((address): DataPlaneDifference => ({
    object: "address",
    name: address,
    kind: "extra",
    found: on(address),
  }));
  if (missing.length === 0) return extra;
  const owners = yield* ownersOfEntries(layout);
  const set = setName("IPVS-IPS", layout.options.family);
  const lacking = missing.map((address): DataPlaneDifference => {
    const key = owners.get(`${set} ${address}`);
    return {
      object: "address",
      name: address,
      kind: "missing",
      ...(key !== undefined && { key }),
      wanted: on(address),
    };
  });
  return [...lacking, ...extra];
}

function compareRules(
  { layout, state, tables }: IpvsComparisonInput,
): readonly DataPlaneDifference[] {
  return [
    ...damagedChains(layout, tables).flatMap(({ differences }) => differences),
    ...state.jumps.map(({ table, from, rule }): DataPlaneDifference => ({
      object: "jump",
      name: `${table} ${from}`,
      kind: "missing",
      wanted: ruleText(rule),
    })),
  ];
}

/** The items that were found, in their order, then the remaining ones. */
function inFoundOrder(wanted: Iterable<string>, found: readonly string[]): readonly string[] {
  const places = new Map(found.map((rule, index) => [normalRule(rule), index]));
  const place = (rule: string) => places.get(normalRule(rule)) ?? found.length;
  return [...wanted].sort((one, other) => place(one) - place(other));
}

/** Maps set and entry to the first ServicePort that needs it. In short steps. */
function* ownersOfEntries(
  layout: IpvsLayout,
): Generator<void, ReadonlyMap<string, ServicePortKey>> {
  const owners = new Map<string, ServicePortKey>();
  for (const key of layout.keys) {
    yield;
    const plan = layout.plan(key);
    if (plan === undefined) continue;
    const { entries, frontends } = renderService(plan, layout);
    const ours = frontends.filter(({ server }) => layout.server(server.key)?.owner === key);
    const all = [
      ...entries,
      ...ours.flatMap((frontend) => [...frontend.entries, ...boundEntry(frontend)]),
    ];
    for (const [id, entry] of all) {
      const name = `${setName(id, layout.options.family)} ${entry}`;
      if (!owners.has(name)) owners.set(name, key);
    }
  }
  return owners;
}

function boundEntry({ bound }: ServiceFrontend): readonly SetEntry[] {
  return bound === undefined ? [] : [["IPVS-IPS", bound]];
}
