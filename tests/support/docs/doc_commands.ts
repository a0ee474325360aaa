/**
 * Checks a command of the docs as far as possible without a cluster. Each program has its own
 * check; a program without one is an error.
 */
import { defaultConfiguration } from "../../../lib/config/configuration.ts";
import { loadConfiguration } from "../../../lib/config/load.ts";
import { VERSION } from "../../../lib/config/version.ts";
import { parseFlags } from "../../../lib/config/parse_flags.ts";
import { VERBS } from "../../../lib/tools/cli/verbs.ts";
import { readDeployFile, readManifest } from "./deploy_files.ts";

const ROOT = new URL("../../../", import.meta.url).pathname;

/** A check: throws an Error that describes the fault of the arguments. */
type Check = (args: readonly string[], scene: DocScene) => void | Promise<void>;

/** The files that the commands of one page use. */
export interface DocScene {
  /** A folder that stands for `/`: installed files are below it. */
  readonly root: string;
  /** Text of `deno.json` and `compile.sh`, which name tasks and flags. */
  readonly denoJson: string;
  readonly compileScript: string;
}

/** The file that `--config` finds in the docs: that of kubeadm, shortened. */
const CONFIGURATION =
  "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/** Foreign units. */
const FOREIGN_UNITS = ["bird", "k3s", "k3s-agent", "systemd-modules-load", "kube-proxy"];
const SYSTEMCTL_VERBS = [
  "daemon-reload",
  "disable",
  "enable",
  "restart",
  "start",
  "status",
  "stop",
];

/** What `convert` writes. */
const CONVERTED = "pools.yaml";
/** Flags of kubectl that take the next word. */
const KUBECTL_VALUES = ["-n", "-f", "-l", "-o", "-c", "--type", "--patch"];
const KUBECTL_VERBS = [
  "apply",
  "config",
  "create",
  "delete",
  "exec",
  "get",
  "label",
  "logs",
  "patch",
  "rollout",
  "set",
  "wait",
];

/** The control socket of the BIRD of kube-relay. */
const DEFAULT_BIRD_SOCKET = defaultConfiguration().routing.bgp.controlSocket;

/** The only folders of a machine in which commands may write or remove files. */
const OWN_PLACES =
  /^\/(var\/lib\/rancher\/k3s\/server\/manifests\/kube-relay\.yaml$|etc\/(kube-relay|default\/kube-relay|modules-load\.d\/kube-relay|systemd\/system\/kube-relay)|usr\/local\/bin\/(kube-relay|kubectl-kube_relay)$|var\/(cache|lib)\/kube-relay|run\/kube-relay)/;

/** What `deploy/release/image.sh dist` makes. */
const IMAGE = `dist/kube-relay_${VERSION}_amd64.oci.tar`;

/** The checks by program. */
const CHECKS: Readonly<Record<string, Check>> = {
  "kube-relay": checkRelay,
  install: checkInstall,
  systemctl: checkSystemctl,
  kubectl: checkKubectl,
  k3s: ([verb, ...args], scene) => {
    if (verb === "ctr") {
      return expect(args.join(" ") === `images import ${IMAGE.slice("dist/".length)}`, `${args}`);
    }
    expect(verb === "kubectl", `k3s ${verb}`);
    return checkKubectl(args, scene);
  },
  kubeadm: ([verb, ...args]) => {
    expect(["init", "upgrade"].includes(verb!), `kubeadm ${verb}`);
    expect(args.length > 0, "kubeadm without a phase");
    // Without a file, kubeadm replaces the ConfigMap by defaults.
    const isProxy = args.join(" ").startsWith("phase addon kube-proxy");
    expect(!isProxy || args.includes("--config"), "kubeadm without --config");
  },
  "deploy/release/image.sh": async ([output, machine]) => {
    await Deno.stat(`${ROOT}deploy/release/image.sh`);
    expect(output === "dist", `OUTPUT_DIR ${output}`);
    expect([undefined, "x86_64", "aarch64"].includes(machine), `MACHINE ${machine}`);
  },
  "deploy/release/chart.sh": async ([output]) => {
    await Deno.stat(`${ROOT}deploy/release/chart.sh`);
    expect(output === "dist", `OUTPUT_DIR ${output}`);
  },
  helm: checkHelm,
  skopeo: ([verb, from, to]) => {
    expect(verb === "copy" && from === `oci-archive:${IMAGE}`, `skopeo ${verb} ${from}`);
    expect(to === `docker://registry.example/kube-relay:${VERSION}`, `${to}`);
  },
  ctr: (args) => {
    expect(args.join(" ") === `-n k8s.io images import ${IMAGE}`, `ctr ${args.join(" ")}`);
  },
  "ssh-keygen": (args) => {
    const verify = "-Y verify -f allowed_signers -I releases@kube-relay -n kube-relay-release";
    expect(args.join(" ").startsWith(`${verify} -s SHA256SUMS.sig`), args.join(" "));
  },
  sha256sum: (args) => expect(args.at(-1) === "SHA256SUMS", args.join(" ")),
  export: ([assignment]) => expect(/^RELEASE_SIGNING_KEY=/.test(assignment!), assignment!),
  "./compile.sh": (args, { compileScript }) => {
    for (const arg of args) expect(compileScript.includes(`\n  ${arg.split("=")[0]} `), arg);
  },
  npx: ([yes, deno, ...args], scene) => {
    expect(yes === "-y" && /^deno@\d+\.\d+\.\d+$/.test(deno!), `npx ${yes} ${deno}`);
    return checkDeno(args, scene);
  },
  deno: checkDeno,
  curl: ([url]) => {
    const { hostname, port, pathname } = new URL(`http://${url}`);
    expect(hostname === "localhost", hostname);
    expect(
      ["10256/healthz", "10249/metrics"].includes(`${port}${pathname}`),
      `${port}${pathname} is served`,
    );
  },
  "iptables-restore": checkRestore,
  "ip6tables-restore": checkRestore,
  nft: checkNft,
  "apt-get": (args) => {
    const words = args.join(" ");
    const packages = ["install bird2", `install ./kube-relay_${VERSION}_amd64.deb`];
    expect(packages.includes(words), `apt-get ${words}`);
  },
  birdc: ([flag, socket, ...words]) => {
    expect(flag === "-s" && socket === DEFAULT_BIRD_SOCKET, `birdc ${flag} ${socket}`);
    expect(words.join(" ") === "graceful restart", `birdc ${words.join(" ")}`);
  },
  tar: async ([verb, archive, ...paths], { compileScript }) => {
    expect(verb === "-cf" && archive === "-", `tar ${verb} ${archive}`);
    for (const path of paths) {
      if (!path.startsWith("dist/")) await Deno.stat(ROOT + path);
      else expect(compileScript.includes(path), `compile.sh makes ${path}`);
    }
  },
  ssh: ([_host, ...words]) => expect(words.join(" ") === "tar -xf -", `ssh ${words.join(" ")}`),
  // Not tee, which would print a key; the file is never readable by other users.
  sh: ([flag, script = ""]) => {
    const [, path] = /^umask 077; cat > (\S+)$/.exec(script) ?? [];
    expect(flag === "-c" && path !== undefined, script);
    checkOwnPlaces([path!]);
  },
  echo: () => {},
  // `announce` has a line of its own in what 'convert' writes.
  sed: (args) => expect(args.join(" ") === `-i /^  announce:/d ${CONVERTED}`, args.join(" ")),
  ln: ([flag, target, link = ""]) => {
    expect(flag === "-s" && target === "kube-relay", `ln ${flag} ${target}`);
    checkOwnPlaces([link.replace("kubectl-kube_relay", "kube-relay")]);
  },
  rm: ([_flags, ...paths]) => checkOwnPlaces(paths),
};

/** The values of the chart exist, and its file has the name that chart.sh gives it. */
async function checkHelm([verb, release, ...args]: readonly string[]): Promise<void> {
  expect(release === "kube-relay", `release ${release}`);
  expect(["install", "upgrade", "uninstall"].includes(verb!), `helm ${verb}`);
  if (verb !== "uninstall") {
    expect(args.shift() === `dist/kube-relay-${VERSION}.tgz`, "the file of the chart");
  }
  while (args.length > 0) {
    const flag = args.shift()!;
    if (flag === "--set") {
      const [name = "", value] = args.shift()!.split("=");
      await checkChartValues({ [name.split(".")[0]!]: value });
    } else if (flag === "-n") expect(args.shift() === "kube-system", "the namespace");
    else if (flag === "--values") args.shift();
    else expect(["--reuse-values", "--take-ownership"].includes(flag), flag);
  }
}

/** The names of values are in the schema of the chart. */
export async function checkChartValues(values: Readonly<Record<string, unknown>>): Promise<void> {
  const schema = JSON.parse(await readDeployFile("chart/kube-relay/values.schema.json"));
  for (const name of Object.keys(values)) expect(name in schema.properties, `value ${name}`);
}

/** Checks one command. Throws an Error for a mistake, and for a program that has no check. */
export async function checkDocCommand(words: readonly string[], scene: DocScene): Promise<void> {
  const [program = "", ...args] = words[0] === "sudo" ? words.slice(1) : words;
  // tests/stories runs the stories, and checks that each is described.
  if (program.startsWith("examples/stories/")) return void await Deno.stat(ROOT + program);
  const name = program === "dist/kube-relay" ? "kube-relay" : program;
  const check = CHECKS[name];
  if (check === undefined) {
    throw new Error(`there is no check for '${program}': add it to CHECKS in doc_commands.ts`);
  }
  await check(args, scene);
}

/** Checks a command line of kube-relay by the real parser. Throws an Error with all its problems. */
export async function checkRelay(args: readonly string[]): Promise<void> {
  const { values, positionals, problems } = parseFlags(args);
  const [verb = "run", ...operands] = positionals;
  const command = VERBS.find(({ name }) => name === verb);
  const { operands: all = [], replacesOperands } = command ?? {};
  const ownModes = command && "ownModes" in command ? command.ownModes ?? [] : [];
  const wanted = replacesOperands !== undefined && values[replacesOperands] !== undefined
    ? []
    : all;
  const least = wanted.filter(({ optional = false }) => !optional).length;
  expect(VERBS.some(({ name }) => name === verb), `verb ${verb}`);
  expect(
    operands.length >= least && (operands.length <= wanted.length || wanted.at(-1)?.many === true),
    `what stands after the verb in '${positionals.join(" ")}'`,
  );
  expect(problems.length === 0, problems.join("; "));
  const { "proxy-mode": mode = "", ...others } = values;
  await loadConfiguration(
    { uid: 0, env: () => undefined, readTextFile: () => Promise.resolve(CONFIGURATION) },
    { flags: ownModes.includes(mode) ? others : values },
  );
}

/** Runs `install` with everything below the scene's root. */
async function checkInstall(args: readonly string[], { root }: DocScene): Promise<void> {
  const paths = args.filter((arg, index) => !arg.startsWith("-") && args[index - 1] !== "-m");
  const target = paths.at(-1)!;
  checkOwnPlaces([target]);
  const rewritten = args.map((arg) => arg === target ? root + target : arg);
  await Deno.mkdir(`${root}${target}`.replace(/\/[^/]*$/, ""), { recursive: true });
  // What the build makes need not be there: any file may stand for it. A package has the documents at
  // the same places.
  const stand = rewritten.map((arg) =>
    arg === "dist/kube-relay" ? "compile.sh" : arg.replace("/usr/share/doc/kube-relay/", "")
  );
  const { code, stderr } = await new Deno.Command("install", { args: stand, cwd: ROOT }).output();
  expect(code === 0, new TextDecoder().decode(stderr));
}

async function checkSystemctl(args: readonly string[]): Promise<void> {
  const [verb, ...units] = args.filter((arg) => arg !== "--now");
  expect(SYSTEMCTL_VERBS.includes(verb!), `systemctl ${verb}`);
  expect((verb === "daemon-reload") === (units.length === 0), `systemctl ${args.join(" ")}`);
  for (const unit of units) {
    if (!FOREIGN_UNITS.includes(unit)) await Deno.stat(`${ROOT}deploy/${unit}.service`);
  }
}

async function checkKubectl(args: readonly string[], _scene: DocScene): Promise<void> {
  // The plugin is the program.
  if (args[0] === "kube-relay") return await checkRelay(args.slice(1));
  const plain: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const arg = args[index]!;
    if (arg === "--") break;
    if (KUBECTL_VALUES.includes(arg)) {
      const value = args[++index]!;
      if (arg === "-f" && value !== CONVERTED) {
        await readManifest(value.replace(/^deploy\//, ""));
      }
      if (arg === "--patch") JSON.parse(value);
    } else if (!arg.startsWith("-")) plain.push(arg);
  }
  expect(KUBECTL_VERBS.includes(plain[0]!), `kubectl ${plain[0]}`);
  for (const [, kind, name] of plain.join(" ").matchAll(/\b(daemonset|configmap)[/ ]([\w-]+)/g)) {
    expect(
      ["kube-relay", "kube-relay-cleanup", "kube-relay-dashboard", "kube-proxy", "kubeadm-config"]
        .includes(name!),
      `${kind} ${name}`,
    );
  }
  const inside = args.indexOf("--");
  if (inside >= 0) await checkRelay(args.slice(inside + 2));
}

/** `deno task NAME …` of a task that there is, or `deno test FILE`. */
async function checkDeno(args: readonly string[], { denoJson }: DocScene): Promise<void> {
  const [verb, name, ...rest] = args;
  if (verb === "test") await Deno.stat(ROOT + name);
  else {
    expect(verb === "task" && name! in JSON.parse(denoJson).tasks, `deno ${args.join(" ")}`);
    if (name === "start") await checkRelay(rest);
  }
}

/** Rejects commands that would delete foreign rules. */
function checkRestore(args: readonly string[]): void {
  expect(args.includes("--noflush"), "iptables-restore without --noflush");
  expect(args.every((arg) => ["--noflush", "--test"].includes(arg)), args.join(" "));
}

/**
 * Allows only commands that read, and changes of the user's own table.
 * `tests/netns/nftables_docs_test.ts` runs the commands.
 */
function checkNft(args: readonly string[]): void {
  const [verb, ...words] = args.filter((arg) => !arg.startsWith("-"));
  const isReading = ["get", "list", "monitor"].includes(verb!);
  const isOwn = ["add", "delete"].includes(verb!) && words.slice(1, 3).join(" ") === "ip look";
  expect(isReading || isOwn, `nft ${args.join(" ")} writes into a table of its own`);
}

function checkOwnPlaces(paths: readonly string[]): void {
  for (const path of paths) expect(OWN_PLACES.test(path), `${path} is a place of kube-relay's`);
}

function expect(condition: boolean, what: string): void {
  if (!condition) throw new Error(`expected otherwise: ${what}`);
}
