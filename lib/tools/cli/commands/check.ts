import { CLUSTER_NETWORK_POLICY } from "../../../api/kinds/cluster_network_policy.ts";
import { NETWORK_POLICY } from "../../../api/kinds/network_policy.ts";
import { POD } from "../../../api/kinds/pod.ts";
import type { Dependencies } from "../../../app/dependencies.ts";
import { AUTO_ORDER } from "../../../app/run/choose_mode.ts";
import { MAX_YAML_LENGTH, readYaml, type YamlDocument } from "../../../config/yaml_source.ts";
import { objectId } from "../../../kube/informer_set.ts";
import {
  formatProblem,
  type ObjectFinding,
  pathSteps,
  problemPlace,
  problemWords,
} from "../../../kube/manifests/manifest_problem.ts";
import { rawObjectId } from "../../../kube/manifests/manifest_objects.ts";
import { hostFileSystem, type ManifestFileSystem } from "../../../kube/manifests/manifests.ts";
import { countText } from "../../../log/count_text.ts";
import { messageOf } from "../../../log/message_of.ts";
import { printableText } from "../../../log/printable_text.ts";
import { readStandardInput } from "../../../os/read_text_up_to.ts";
import { contestedItems } from "../../../proxy/frontend_owners.ts";
import { serviceKey } from "../../../proxy/service_port_name.ts";
import { ControlError } from "../../control/control_client.ts";
import { planWhatIf, type WhatIf, whatIfJson, whatIfReport } from "../../diff/what_if.ts";
import { planNode, planRunningNode } from "../../offline/plan_node.ts";
import {
  findingOf,
  type PlannedNode,
  type PlanNodeDependencies,
  planPolicies,
} from "../../offline/planned_node.ts";
import { type Line, painter } from "../../report.ts";
import { type CommandContext, logNotices, printAnswer, usesColor } from "./command.ts";

/** Exit code if there are warnings and no errors. */
const WARNED = 3;
/** The operand that stands for standard input. */
const STANDARD_INPUT = "-";

/**
 * Prints everything that a start would report about manifests and, if a process runs here, what whole folders
 * of them would change. Exits with status 1 after errors and with 3 after warnings.
 */
export async function checkVerb(
  edges: Dependencies,
  context: CommandContext,
): Promise<number> {
  logNotices(context);
  const { logger } = context;
  const dependencies = { ...edges, logger, fileSystem: withStandardInput() };
  // Which mode 'auto' is depends on the machine; what is wrong with manifests hardly does.
  const { mode } = context.configuration;
  const configuration = {
    ...context.configuration,
    mode: mode === "auto" ? AUTO_ORDER[0]! : mode,
  };
  const planned = await planNode(dependencies, {
    ...{ flags: {}, configuration },
    mayMissPaths: true,
  });
  const whatIf = await compareRunning(dependencies, configuration);
  const found = distinct([
    ...findingsOf(dependencies, planned),
    ...(whatIf ? findingsOf(dependencies, whatIf.after) : []),
  ]);
  const findings = inOrder(await locate(dependencies.fileSystem, planned, found));
  const { files = [] } = planned;
  if (!context.flags.json) {
    const paint = painter(usesColor(edges.process));
    for (const { text, tone } of findingLines(findings, files.length)) {
      edges.print(`${paint({ text: printableText(text), tone })}\n`);
    }
    if (whatIf) edges.print("\n");
  }
  if (context.flags.json || whatIf) {
    const changes = whatIf && { changes: whatIfJson(whatIf) };
    const data = () => ({ files: files.length, findings, ...changes });
    printAnswer(edges, context, data, () => whatIfReport(whatIf!));
  }
  if (findings.some(({ severity }) => severity === "error")) return 1;
  return findings.length === 0 ? 0 : WARNED;
}

/** The machine's files, and standard input as one of them: it can be read once. */
function withStandardInput(): ManifestFileSystem {
  let text: Promise<string> | undefined;
  return {
    ...hostFileSystem,
    async stat(path) {
      if (path === STANDARD_INPUT) return { kind: "file", identity: "", version: "", size: 0 };
      const state = await hostFileSystem.stat(path);
      if (state?.kind === "other" && /^\/(?:dev|proc)\//.test(path)) {
        throw new TypeError("it is not a regular file; for standard input, give -");
      }
      return state;
    },
    readText: (path, maxBytes) =>
      path === STANDARD_INPUT
        ? text ??= readStandardInput(maxBytes)
        : hostFileSystem.readText(path, maxBytes),
  };
}

/**
 * Compares with the objects of the process that runs here; `undefined` without one. A single file is a part
 * of the objects: everything else would look removed.
 */
async function compareRunning(
  dependencies: Dependencies & PlanNodeDependencies,
  configuration: CommandContext["configuration"],
): Promise<WhatIf | undefined> {
  const { relay } = configuration;
  for (const path of relay.manifests) {
    const state = path === STANDARD_INPUT
      ? undefined
      : await hostFileSystem.stat(path).catch(() => undefined);
    if (state?.kind !== "folder") return undefined;
  }
  try {
    const running = await planRunningNode(dependencies, relay);
    return await planWhatIf(dependencies, running, configuration, undefined);
  } catch (error) {
    if (error instanceof ControlError && error.kind === "not-running") return undefined;
    const reason = messageOf(error);
    dependencies.complain(`kube-relay: the changes are not shown: ${reason}\n`);
    return undefined;
  }
}

/** What a start would report about the objects of a node. */
function* findingsOf(
  dependencies: PlanNodeDependencies,
  planned: PlannedNode,
): Generator<ObjectFinding> {
  const { plans, configuration: { proxy }, informers, files = [], placed = (found) => found } =
    planned;
  yield* planned.problems;
  for (const { path: file, unserved } of files) {
    if (unserved === undefined) continue;
    yield warning(`objects of kinds that are not served are ignored: ${unserved}`, { file });
  }
  const isEmpty = planned.files?.every(({ objects }) => objects === 0);
  if (isEmpty && !planned.isIncomplete) {
    yield warning("there is no object that kube-relay reads");
  }
  for (
    const spec of proxy.networkPolicy.enabled ? [] : [NETWORK_POLICY, CLUSTER_NETWORK_POLICY, POD]
  ) {
    if (!informers.kinds.has(spec.kind)) continue;
    for (const object of informers.of(spec as typeof POD).values()) {
      const message = "is ignored: NetworkPolicies are enforced with --network-policy only";
      yield placed(warning(message, { object: objectId(spec as typeof POD, object) }));
    }
  }
  // Of these, a policy is planned without its invalid fields.
  const invalid = new Set(
    planned.problems.map(({ severity, file, object }) =>
      severity === "error" && file !== undefined ? object : undefined
    ),
  );
  for (const [family, plan] of plans) {
    for (const service of plan.services.values()) {
      const { name, key, endpoints } = service;
      const object = `Service ${serviceKey(name)}`;
      const port = name.port === "" ? "" : `port '${name.port}': `;
      for (const { reason } of contestedItems(service)) {
        yield placed({ ...warning(port + reason, { object }), severity: "error" });
      }
      for (const text of endpoints.length > 0 ? [] : planned.otherPorts(family, key)) {
        yield placed(warning(`${port}it has no endpoints: ${text}`, { object }));
      }
    }
    for (const problem of planPolicies(dependencies, planned, family)?.problems ?? []) {
      const finding = findingOf(problem);
      if (!invalid.has(finding.object)) yield placed(finding);
    }
  }
}

function warning(
  message: string,
  place: Partial<Pick<ObjectFinding, "file" | "object">> = {},
): ObjectFinding {
  const { file } = place;
  return { ...place, ...(file && { line: 1 }), severity: "warning", path: "", value: "", message };
}

function distinct(findings: readonly ObjectFinding[]): readonly ObjectFinding[] {
  return [...new Map(findings.map((each) => [formatProblem(each), each])).values()];
}

/** Adds the place of the field to findings about objects that are documents of their own. */
async function locate(
  { readText }: ManifestFileSystem,
  { informers }: PlannedNode,
  findings: readonly ObjectFinding[],
): Promise<readonly ObjectFinding[]> {
  const texts = new Map<string, Promise<readonly YamlDocument[]>>();
  const documentsOf = async (file: string) => {
    const text = await readText(file, MAX_YAML_LENGTH).catch(() => "");
    return readYaml(text, { file, quick: true }).documents;
  };
  return await Promise.all(findings.map(async (finding) => {
    const { file, column, object = "", path } = finding;
    const spec = informers.kinds.get(object.slice(0, object.indexOf(" ")));
    if (file === undefined || column !== undefined || !spec) return finding;
    const documents = await texts.getOrInsertComputed(file, documentsOf);
    const document = documents.find(({ value }) => rawObjectId(spec, value) === object);
    return document ? { ...finding, ...document.positionOf(pathSteps(path)) } : finding;
  }));
}

/** By file and line, those without a file first. */
function inOrder(findings: readonly ObjectFinding[]): readonly ObjectFinding[] {
  return findings.toSorted((one, other) =>
    compare(one.file ?? "", other.file ?? "") || (one.line ?? 0) - (other.line ?? 0) ||
    (one.column ?? 0) - (other.column ?? 0)
  );
}

function compare(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}

/** One line for each finding, in the form of gcc, which editors and CI systems recognize. */
function findingLines(findings: readonly ObjectFinding[], files: number): readonly Line[] {
  const errors = findings.filter(({ severity }) => severity === "error").length;
  const warnings = findings.length - errors;
  const counts = [
    ...(errors > 0 ? [countText(errors, "error")] : []),
    ...(warnings > 0 ? [countText(warnings, "warning")] : []),
  ].join(" and ") || "No problems";
  const tone = errors > 0 ? "bad" : warnings > 0 ? "warning" : "good";
  return [
    ...findings.map((finding): Line => ({
      text: `${problemPlace(finding)}${finding.severity}: ${problemWords(finding)}`,
      tone: finding.severity === "error" ? "bad" : "warning",
    })),
    { text: `${counts} in ${countText(files, "file")}`, tone },
  ];
}
