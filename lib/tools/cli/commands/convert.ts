import { LOAD_BALANCER_POOL } from "../../../api/kinds/routing_objects.ts";
import type { Dependencies } from "../../../app/dependencies.ts";
import { ConfigurationError } from "../../../config/configuration_error.ts";
import { MAX_YAML_LENGTH } from "../../../config/yaml_source.ts";
import { openTransport } from "../../../kube/api_transport.ts";
import { ApiError } from "../../../kube/api_error.ts";
import { KubeClient } from "../../../kube/client.ts";
import { loadKubeAuth } from "../../../kube/kubeconfig.ts";
import { readRawObjects } from "../../../kube/manifests/manifest_file.ts";
import { isMapping } from "../../../kube/manifests/manifest_objects.ts";
import { messageOf } from "../../../log/message_of.ts";
import { printableText } from "../../../log/printable_text.ts";
import { readStandardInput, readTextUpTo } from "../../../os/read_text_up_to.ts";
import { convertMetallb, type PlacedRaw } from "../../convert/metallb.ts";
import type { CommandContext } from "./command.ts";

const RESOURCES = [
  "v1beta1/ipaddresspools",
  "v1beta1/addresspools",
  "v1beta1/l2advertisements",
  "v1beta1/bgpadvertisements",
  "v1beta1/communities",
  "v1beta2/bgppeers",
];

/**
 * Prints the objects of MetalLB as LoadBalancerPools and BgpPeers. Exits with status 1 if some cannot be
 * converted. Rejects if nothing can be read.
 */
export async function convertVerb(
  dependencies: Dependencies,
  { flags, operands = [], logger, configuration: { proxy } }: CommandContext,
): Promise<number> {
  const { print, complain } = dependencies;
  const [what, ...paths] = operands;
  if (what !== "metallb") {
    throw new ConfigurationError([`Cannot convert '${what}': expected metallb`]);
  }
  const { kubeconfig } = proxy.clientConnection;
  if (paths.length === 0 && kubeconfig === "" && flags.master === undefined) {
    throw new Error(
      "Cannot convert: name files, - for standard input, or a cluster by --kubeconfig",
    );
  }
  const problems: string[] = [];
  const given = paths.length > 0
    ? (await Promise.all(paths.map((path) => readPath(path, problems)))).flat()
    : await readCluster({ ...dependencies, logger }, kubeconfig, flags.master);
  const { text, problems: found } = convertMetallb(given);
  problems.push(...found);
  print(text);
  for (const problem of problems) complain(`${printableText(problem)}\n`);
  if (text === "" && problems.length === 0) {
    complain(
      `Nothing to convert: there is no object of MetalLB for a ${LOAD_BALANCER_POOL.kind}\n`,
    );
  }
  return problems.length > 0 ? 1 : 0;
}

const MOST_BYTES = 8 * MAX_YAML_LENGTH;

async function readPath(path: string, problems: string[]): Promise<readonly PlacedRaw[]> {
  const read = path === "-" ? readStandardInput(MOST_BYTES) : readTextUpTo(path, MOST_BYTES);
  const text = await read.catch((error) => {
    throw new Error(`Cannot read '${path}': ${messageOf(error)}`, { cause: error });
  });
  return readRawObjects(text, path, problems);
}

async function readCluster(
  { clock, commands, logger, process: { env } }: Dependencies & Pick<CommandContext, "logger">,
  kubeconfig: string,
  master: string | undefined,
): Promise<readonly PlacedRaw[]> {
  const auth = await loadKubeAuth({ clock, logger, commands }, {
    ...(kubeconfig !== "" && { kubeconfig }),
    ...(master !== undefined && { master }),
    env,
  });
  await using transport = openTransport(clock, auth);
  const client = new KubeClient({ clock, auth, transport });
  const lists = await Promise.all(RESOURCES.map(async (resource) => {
    const signal = new AbortController().signal;
    try {
      return await client.get(`/apis/metallb.io/${resource}`, signal);
    } catch (error) {
      // Versions of MetalLB have different kinds.
      if (error instanceof ApiError && error.isNotFound()) return undefined;
      throw error;
    }
  }));
  return lists.flatMap((list) => {
    const { kind, items } = isMapping(list) ? list : {};
    return (Array.isArray(items) ? items : []).filter(isMapping).map((value) => ({
      value: { kind: String(kind).replace(/List$/, ""), ...value },
      place: auth.server,
    }));
  });
}
