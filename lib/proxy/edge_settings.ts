/**
 * The settings of a Service for mode userspace, from its annotations.
 *
 * @module
 */
import type { Service } from "../api/kinds/service.ts";
import type { ProblemCollector } from "../api/problem.ts";
import {
  EDGE_ANNOTATIONS,
  type EdgeSettingName,
  type EdgeValues,
  type EndpointPlace,
} from "../api/service_annotations.ts";

/** The valid annotations, and the names of the others. */
export interface EdgeSettings extends EdgeValues {
  /** Annotations with an unusable value, for `status` and `explain`. */
  readonly unused?: readonly string[];
}

const NAMES = Object.keys(EDGE_ANNOTATIONS) as readonly EdgeSettingName[];

/**
 * Reads the settings of a Service; `undefined` if it has none, as almost always. An unusable value is
 * reported, and its default applies. `areChecked`: the reader of the manifest has reported such values.
 */
export function edgeSettingsOf(
  { metadata: { annotations }, spec }: Pick<Service, "metadata"> & Partial<Pick<Service, "spec">>,
  problems: ProblemCollector,
  areChecked = false,
): EdgeSettings | undefined {
  if (annotations === undefined) return undefined;
  const values: [string, unknown][] = [];
  const unused: string[] = [];
  for (const setting of NAMES) {
    const { name, parse, expected, salvage } = EDGE_ANNOTATIONS[setting];
    const text = annotations[name];
    if (text === undefined) continue;
    const valid = parse(text.trim());
    const value = valid ?? salvage?.(text);
    if (value !== undefined) values.push([setting, value]);
    if (valid === undefined) {
      unused.push(name);
      if (areChecked) continue;
      const unusable = salvage ? "Invalid items of the annotation are" : "The annotation is";
      const message = `${unusable} not used: it ${expected}`;
      problems.report(`metadata.annotations['${name}']`, text, message);
    }
  }
  if (values.length === 0 && unused.length === 0) return undefined;
  const settings: EdgeSettings = Object.fromEntries([
    ...values,
    ...(unused.length > 0 ? [["unused", unused]] : []),
  ]);
  if (spec?.ports?.some(({ protocol }) => protocol === "UDP")) reportUdpCheck(settings, problems);
  return settings;
}

/** A datagram that is not answered says nothing about its endpoint. */
function reportUdpCheck({ healthCheck, healthPort }: EdgeSettings, problems: ProblemCollector) {
  if (healthCheck === undefined || healthPort !== undefined) return;
  const { name } = EDGE_ANNOTATIONS.healthCheck;
  const message = "The endpoints of UDP ports are not checked: " +
    `${EDGE_ANNOTATIONS.healthPort.name} has to name a TCP port at their addresses`;
  problems.report(`metadata.annotations['${name}']`, healthCheck, message);
}

/** Items of an annotation for endpoints that a Service does not have. */
interface UnusedItems {
  /** The name of the annotation. */
  readonly name: string;
  /** As the annotation has them. */
  readonly items: string;
}

/** Returns the items without an endpoint; `unused` returns those of a list that have none. */
export function unusedItems(
  { weights = [], unixSockets = [] }: EdgeSettings,
  unused: <Place extends EndpointPlace>(places: readonly Place[]) => readonly Place[],
): readonly UnusedItems[] {
  const { weights: weightRow, unixSockets: socketRow } = EDGE_ANNOTATIONS;
  return [
    { name: weightRow.name, items: weightRow.format(unused(weights)) },
    { name: socketRow.name, items: socketRow.format(unused(unixSockets)) },
  ].filter(({ items }) => items !== "");
}

/** Writes the settings as texts such as `balance source-hash`, in the order of the table. */
export function describeEdgeSettings(settings: EdgeSettings): readonly string[] {
  const used = NAMES.filter((setting) => settings[setting] !== undefined).map((setting) => {
    const { name, format } = EDGE_ANNOTATIONS[setting];
    // TypeScript does not see that the value belongs to the row of the same name.
    const text = (format as (value: unknown) => string)(settings[setting]) || "(none)";
    return `${name.slice(name.indexOf("/") + 1)} ${text}`;
  });
  const unused = (settings.unused ?? [])
    .map((name) => `annotation ${name} has an invalid value`);
  return [...used, ...unused];
}
