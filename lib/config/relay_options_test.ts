import { assertEquals } from "@std/assert";
import { defaultConfiguration } from "./configuration.ts";
import { validateSources } from "./relay_options.ts";

interface Given {
  readonly manifests?: readonly string[];
  readonly "unix-socket-folders"?: readonly string[];
  readonly master?: string;
  readonly kubeconfig?: string;
  readonly policyKubeconfig?: string;
  readonly routingKubeconfig?: string;
  readonly controlSocket?: string;
}

const CASES: readonly [string, Given, readonly string[]][] = [
  ["takes manifests alone", { manifests: ["m"] }, []],
  ["takes a kubeconfig and --master", { master: "m", kubeconfig: "k" }, []],
  ["takes folders of Unix sockets with manifests", {
    manifests: ["m"],
    "unix-socket-folders": ["/run/app"],
  }, []],
  [
    "refuses folders of Unix sockets without manifests",
    { "unix-socket-folders": ["/run/app"] },
    [
      "--unix-socket-folders: Cannot use Unix sockets for Services of an API server; give --manifests",
    ],
  ],
  [
    "refuses a relative folder of Unix sockets",
    { manifests: ["m"], "unix-socket-folders": ["run"] },
    ["--unix-socket-folders: Expected absolute paths, found 'run'"],
  ],
  [
    "refuses manifests and a kubeconfig",
    { manifests: ["m"], kubeconfig: "/k" },
    [
      "--manifests: Cannot take objects from manifests and from kubeconfig '/k' at once; give one of them",
    ],
  ],
  [
    "refuses manifests and --master",
    { manifests: ["m"], master: "https://h" },
    ["--manifests: Cannot take objects from manifests and from --master at once; give one of them"],
  ],
  [
    "refuses manifests and --policy-kubeconfig",
    { manifests: ["m"], policyKubeconfig: "/p" },
    [
      "--policy-kubeconfig: Cannot take policies from '/p' and from manifests at once; give one of them",
    ],
  ],
  [
    "refuses manifests and --routing-kubeconfig",
    { manifests: ["m"], routingKubeconfig: "/r" },
    [
      "--routing-kubeconfig: Cannot take Nodes and addresses from '/r' and from manifests at once; " +
      "give one of them",
    ],
  ],
  [
    "refuses --manifests without a path",
    { manifests: [] },
    ["--manifests: Expected the path of a file or folder, found nothing"],
  ],
  ["takes the longest path of a socket", { controlSocket: `/${"s".repeat(106)}` }, []],
  [
    "counts the bytes of the socket's path",
    { controlSocket: `/${"ä".repeat(53)}s` },
    [
      `--control-socket: Expected a path of at most 107 bytes, found '/${"ä".repeat(53)}s' ` +
      "with 108: Unix sockets have no room for more",
    ],
  ],
];

for (const [name, given, expected] of CASES) {
  Deno.test(`validateSources() ${name}`, () => {
    const { kubeconfig = "", policyKubeconfig = "", controlSocket = "/run/s", ...rest } = given;
    const { routingKubeconfig = "", ...flags } = rest;
    const { clientConnection, networkPolicy, routing } = defaultConfiguration();
    const proxy = {
      clientConnection: { ...clientConnection, kubeconfig },
      networkPolicy: { ...networkPolicy, kubeconfig: policyKubeconfig },
      routing: { ...routing, kubeconfig: routingKubeconfig },
    };
    assertEquals(validateSources(flags, proxy, controlSocket), expected);
  });
}
