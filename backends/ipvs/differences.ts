import type { Change, ObjectName } from "../../lib/engine/reconciler.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { compareChain } from "../netfilter/iptables/compare_chain.ts";
import { ruleLines, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { baseChains, FROM_CLUSTER } from "./base_rules.ts";
import { SET_IDS, setName, setOptions } from "./ipset_table.ts";
import { isEntry, readRealName } from "./objects.ts";
import type { IpvsTarget } from "./target.ts";
import { describeServer, type ServerKey } from "./virtual_server.ts";

type IpvsChange = Change<ServicePortKey>;
type Words = Omit<DataPlaneDifference, "kind"> & Partial<Pick<DataPlaneDifference, "kind">>;

/** The differences in words. */
export async function ipvsDifferences(
  target: IpvsTarget,
  changes: readonly IpvsChange[],
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
  const hasNoDevice = changes.some(({ kind }) => kind === "device");
  const listed = changes.filter(({ kind, name }) =>
    !named.has(kind) && !(kind === "address" && hasNoDevice) &&
    !(kind === "real" && servers.has(readRealName(name)[0]))
  );
  const shared = listed.filter((change) => isShared(change) && !isExtra(change));
  const owners = await target.ownersOf(shared);
  const rules = changes.some(isOfServices) ? await rulesOfServices(target) : [];
  return [
    ...listed.filter((change) => !isOfServices(change)).flatMap((change) => {
      const owner = isShared(change)
        ? owners.get(`${change.kind} ${change.name}`)?.[0]
        : change.owner ?? ownerOfExtra(target, change);
      const kind = isExtra(change) ? "extra" : isMissing(change) ? "missing" : "altered";
      const key = owner === undefined ? {} : { key: owner };
      return inWords(target, change).map((words): DataPlaneDifference => ({
        kind,
        ...words,
        ...key,
      }));
    }),
    ...rules,
  ];
}

/** Entries and addresses, of which the engine does not know the owner. */
function isShared(change: ObjectName): boolean {
  return isEntry(change) || change.kind === "address";
}

function isOfServices({ kind, name }: ObjectName): boolean {
  return kind === "rule" || (kind === "chain" && name === `nat ${FROM_CLUSTER}`);
}

function ownerOfExtra({ layout }: IpvsTarget, { kind, name }: ObjectName) {
  return kind === "real" ? layout.server(readRealName(name)[0])?.owner : undefined;
}

function inWords(
  { layout }: IpvsTarget,
  { kind, name, before, after }: IpvsChange,
): readonly Words[] {
  const { family } = layout.options;
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
    case "jump": {
      const [, place = "", rule = ""] = /^(\S+ \S+) (.*)$/.exec(name) ?? [];
      return [{ object: "jump", name: place, ...texts(() => rule) }];
    }
    case "chain": {
      const [table = "", chain = ""] = name.split(" ");
      const found = before === undefined ? undefined : ruleLines(before);
      return compareChain({ table, name: chain, rules: ruleLines(after) }, found);
    }
    case "server":
      return [{
        object: "virtual server",
        name: describeServer(name as ServerKey),
        ...texts((text) => text),
      }];
    case "real": {
      const [server, real] = readRealName(name);
      const place = `${describeServer(server)} -> ${real}`;
      return [{ object: "real server", name: place, ...texts((text) => text) }];
    }
    default:
      return [{ object: "ip set entry", name: `${kind} ${name}`, ...texts(() => name) }];
  }
}

/** Rules of single Services are in no order. */
async function rulesOfServices(target: IpvsTarget): Promise<readonly DataPlaneDifference[]> {
  const { foundRules, layout } = target;
  const places = new Map((foundRules ?? []).map((rule, index) => [normalRule(rule), index]));
  const own = [...await target.rulesOfServices()].map(([normal, rule]) => ({
    place: places.get(normal) ?? places.size,
    rule,
  }));
  own.sort((one, other) => one.place - other.place);
  const fixed = baseChains(layout.ruleContext).find(({ name }) => name === FROM_CLUSTER);
  const rules = [...(fixed?.rules ?? []).map(ruleText), ...own.map(({ rule }) => rule)];
  return compareChain({ table: "nat", name: FROM_CLUSTER, rules }, foundRules);
}
