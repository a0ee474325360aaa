import type { Gate } from "../gates.ts";
import type { IptablesVariant } from "./iptables_tool.ts";
import type { VariantFigures } from "./measure_variant.ts";
import type { OwnCost } from "./own_cost.ts";
import type { StartFigures } from "../start/run_start.ts";

/** The size at which full loads are compared: kube-proxy's layout is not yet beyond all measure. */
const COMPARED = 5000;
/** A full load, as a share of that of kube-proxy's layout. */
const LOAD_SHARE: Readonly<Record<IptablesVariant, number>> = { nft: 1 / 15, legacy: 1 / 2 };
/**
 * kube-proxy's layout costs iptables-nft the square of its chains, walked in memory: 16 s on one
 * processor, 7 s on one whose cache holds them. The layout of kube-relay takes 0.5 s on both.
 */
const LOAD_SLACK = 0.5;
const GROWTH = 2.4;
const LINES = 60;
const COUNT = { digits: 0, slack: 0 };
/**
 * iptables-nft: one change among all Services, against one among few. An aim that no layout reaches:
 * for each write of a rule, whatever it is, the kernel walks all rules of the table once for every
 * base chain that leads to them (nft_chain_validate, 70 % of the time among 10,000).
 */
const CHANGE_GROWTH = 1.5;
/** One change, against the smallest write that the same table can be given. */
const LEAST_FACTOR = 1.5;
/** iptables-legacy reads and writes the whole table: one change, as a share of a partial sync. */
const CHANGE_SHARE = 1 / 3;
const CONNECT_GROWTH = 1.3;

/** Limits on the layout. In CPU time, because other processes use the machine too. */
export function variantGates(figures: VariantFigures): readonly Gate[] {
  const { variant, changes } = figures;
  const most = Math.max(...changes.map(({ mostLines }) => mostLines));
  return [
    ...loadGates(figures),
    { name: `${variant}: lines of one change`, value: most, atMost: LINES, ...COUNT },
    ...changeGates(figures),
    ...connectGates(figures),
  ];
}

/**
 * Limits on kube-relay's share of a full load. iptables-legacy loads the layout of kube-relay in
 * less time than any program needs to write it, so there the comparison is with kube-proxy's
 * layout.
 */
export function costGates(
  { variant, sizes, baselines }: VariantFigures,
  { cpuMs }: OwnCost,
): readonly Gate[] {
  const { loadCpuMs: largest, services } = baselines.at(-1) ?? {};
  const ours = sizes.at(-1)?.loadCpuMs.median ?? NaN;
  const name = `${variant}: our CPU / the tool's for`;
  const share = { name: `${name} our layout`, value: cpuMs / ours, atMost: 1 };
  return [
    {
      name: `${name} kube-proxy's layout of ${services}`,
      value: cpuMs / (largest?.median ?? NaN),
      atMost: 1,
    },
    variant === "nft"
      ? share
      : { ...share, onlyAim: "compared with kube-proxy's layout it is met" },
  ];
}

/** Demands on a start on real API machinery. */
export function startGates(
  { services, residentMiB, changeLines }: StartFigures,
): readonly Gate[] {
  return [
    { name: `MiB resident with ${services} Services`, value: residentMiB, atMost: 150, digits: 0 },
    { name: "lines of one change while running", value: changeLines, atMost: LINES, ...COUNT },
  ];
}

function loadGates({ variant, sizes, baselines }: VariantFigures): readonly Gate[] {
  const at = sizes.find(({ services }) => services === COMPARED)?.loadCpuMs.median ?? NaN;
  const baseline = baselines.find(({ services }) => services === COMPARED)?.loadCpuMs.median ?? NaN;
  const last = sizes.at(-1)?.loadCpuMs.median ?? NaN;
  return [
    {
      name: `${variant}: load of ${COMPARED} / kube-proxy's layout`,
      value: at / baseline,
      atMost: LOAD_SHARE[variant],
      slack: LOAD_SLACK,
      digits: 3,
    },
    {
      name: `${variant}: load of ${2 * COMPARED} / of ${COMPARED}`,
      value: last / at,
      atMost: GROWTH,
    },
  ];
}

function changeGates({ variant, changes, baselines }: VariantFigures): readonly Gate[] {
  const few = changes[0];
  const many = changes.at(-1);
  const least = many?.leastCpuMs.median ?? NaN;
  const partial = baselines.at(-1)?.partialCpuMs.median ?? NaN;
  const kinds = [["endpoint", "changeCpuMs"], ["Service", "addCpuMs"]] as const;
  return kinds.flatMap(([kind, field]): readonly Gate[] => {
    const value = many?.[field].median ?? NaN;
    const name = `${variant}: one ${kind} among ${many?.services}`;
    const overLeast = { name: `${name} / least write`, value: value / least, atMost: LEAST_FACTOR };
    if (variant === "legacy") {
      const share = { value: value / partial, atMost: CHANGE_SHARE };
      return [overLeast, { name: `${name} / kube-proxy's partial sync`, ...share }];
    }
    return [overLeast, {
      name: `${name} / among ${few?.services}`,
      value: value / (few?.[field].median ?? NaN),
      atMost: CHANGE_GROWTH,
      onlyAim: "the kernel's",
    }];
  });
}

function connectGates({ variant, connects }: VariantFigures): readonly Gate[] {
  const few = connects[0];
  const many = connects.at(-1);
  return Object.entries(many?.medians ?? {}).map(([name, median]) => ({
    name: `${variant}: first packet, ${name}: among ${many?.services} / among ${few?.services}`,
    value: median / (few?.medians[name] ?? NaN),
    atMost: CONNECT_GROWTH,
  }));
}
