import type { Change, ObjectName } from "../../lib/engine/reconciler.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { compareChain } from "../netfilter/iptables/rule_normal_form.ts";
import { ruleLines } from "../netfilter/iptables/iptables_objects.ts";
import { FROM_CLUSTER } from "./base_rules.ts";
import { SET_IDS, setName, setOptions } from "./ipset_table.ts";
import { isEntry, readRealName } from "./objects.ts";
import type { IpvsTarget } from "./target.ts";
import { describeServer, type ServerKey } from "../netfilter/virtual_servers.ts";

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
  const isRewritten = changes.some(({ kind, name }) =>
    kind === "chain" && name === `nat ${FROM_CLUSTER}`
  );
  const hasNoDevice = changes.some(({ kind }) => kind === "device");
  const listed = changes.filter(({ kind, name }) =>
    !named.has(kind) && !(kind === "address" && hasNoDevice) && !(kind === "rule" && isRewritten) &&
    !(kind === "real" && servers.has(readRealName(name)[0]))
  );
  const owners = await target.ownersOf(listed.flatMap((change) => ownedBy(change) ?? []));
  const rules = changes.flatMap(({ kind, after }) => kind === "rule" ? after ?? [] : []);
  return listed.flatMap((change) => {
    const kind = isExtra(change) ? "extra" : isMissing(change) ? "missing" : "altered";
    const by = ownedBy(change);
    const owner = change.owner ?? (by && owners.get(`${by.kind} ${by.name}`)?.[0]);
    const key = owner === undefined ? {} : { key: owner };
    return inWords(target, change, rules).map((words): DataPlaneDifference => ({
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
    return isEntry({ kind }) || kind === "address" ? { kind, name } : undefined;
  }
  return kind === "real" ? { kind: "server", name: readRealName(name)[0] } : undefined;
}

function inWords(
  { layout }: IpvsTarget,
  { kind, name, before, after }: IpvsChange,
  rulesOfServices: readonly string[],
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
      const own = chain === FROM_CLUSTER ? rulesOfServices : [];
      return compareChain({ table, name: chain, rules: [...ruleLines(after), ...own] }, found);
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
