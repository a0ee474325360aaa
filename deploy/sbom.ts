/**
 * Writes the software bill of materials of the executable, as SPDX 2.3: kube-relay, Deno and the npm
 * packages in the bundle, with the checksums of `deno.lock`.
 *
 * `SOURCE_DATE_EPOCH=… deno run --allow-read --allow-env=SOURCE_DATE_EPOCH deploy/sbom.ts DENO_VERSION main.js.map …`
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { type BundledPackage, packagesOfMaps } from "./third_party_licenses.ts";

/** A package of npm, with what the document says about it. */
export interface ListedPackage extends Pick<BundledPackage, "name" | "version"> {
  /** An SPDX expression, from its package.json. */
  readonly license?: string;
  /** As in deno.lock: `sha512-` and base64. */
  readonly integrity?: string;
}

/** Returns the value of deno.lock for a package; its keys end with the peers of a package. */
export function integrityOf(
  { name, version }: Pick<BundledPackage, "name" | "version">,
  locked: Readonly<Record<string, { readonly integrity?: string }>>,
): string | undefined {
  const id = `${name}@${version}`;
  const key = Object.keys(locked).find((key) => key === id || key.startsWith(`${id}_`));
  return key === undefined ? undefined : locked[key]?.integrity;
}

/** Returns the document. The same input results in the same bytes. */
export function renderSbom(
  { version, deno, created }: {
    readonly version: string;
    readonly deno: string;
    readonly created: Date;
  },
  packages: readonly ListedPackage[],
): string {
  const common = {
    filesAnalyzed: false,
    licenseConcluded: "NOASSERTION",
    copyrightText: "NOASSERTION",
  };
  const own = {
    SPDXID: "SPDXRef-kube-relay",
    name: "kube-relay",
    versionInfo: version,
    downloadLocation: "NOASSERTION",
    licenseDeclared: "Apache-2.0",
    ...common,
  };
  const runtime = {
    SPDXID: "SPDXRef-deno",
    name: "deno",
    versionInfo: deno,
    downloadLocation: "NOASSERTION",
    licenseDeclared: "MIT",
    ...common,
    externalRefs: [purl(`pkg:github/denoland/deno@v${deno}`)],
  };
  const bundled = packages.map(({ name, version, license, integrity = "" }) => {
    const [, sha512] = /^sha512-(.+)$/.exec(integrity) ?? [];
    return {
      SPDXID: `SPDXRef-npm-${`${name}-${version}`.replace(/[^A-Za-z0-9.]+/g, "-")}`,
      name,
      versionInfo: version,
      downloadLocation: "NOASSERTION",
      licenseDeclared: license ?? "NOASSERTION",
      ...common,
      ...sha512 && {
        checksums: [{
          algorithm: "SHA512",
          checksumValue: Buffer.from(sha512, "base64").toString("hex"),
        }],
      },
      externalRefs: [purl(`pkg:npm/${name.replace("@", "%40")}@${version}`)],
    };
  });
  const all = [own, runtime, ...bundled];
  const digest = createHash("sha256").update(JSON.stringify(all)).digest("hex").slice(0, 32);
  const document = {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: `kube-relay-${version}`,
    documentNamespace: `https://spdx.org/spdxdocs/kube-relay-${version}-${digest}`,
    creationInfo: {
      created: created.toISOString().replace(/\.\d+Z$/, "Z"),
      creators: ["Tool: kube-relay-sbom"],
    },
    packages: all,
    relationships: [
      {
        spdxElementId: "SPDXRef-DOCUMENT",
        relationshipType: "DESCRIBES",
        relatedSpdxElement: own.SPDXID,
      },
      ...[runtime, ...bundled].map(({ SPDXID }) => ({
        spdxElementId: own.SPDXID,
        relationshipType: "CONTAINS",
        relatedSpdxElement: SPDXID,
      })),
    ],
  };
  return JSON.stringify(document, undefined, 2) + "\n";
}

function purl(locator: string): Record<string, string> {
  return {
    referenceCategory: "PACKAGE-MANAGER",
    referenceType: "purl",
    referenceLocator: locator,
  };
}

async function readJson(path: string | URL) {
  return JSON.parse(await Deno.readTextFile(path));
}

if (import.meta.main) {
  const { version } = await readJson(new URL("../deno.json", import.meta.url));
  const { npm } = await readJson(new URL("../deno.lock", import.meta.url));
  const listed: ListedPackage[] = [];
  const [deno = "", ...maps] = Deno.args;
  for (const found of await packagesOfMaps(maps)) {
    const { license } = await readJson(join(found.directory, "package.json"));
    const integrity = integrityOf(found, npm);
    listed.push({
      name: found.name,
      version: found.version,
      ...typeof license === "string" && { license },
      ...integrity !== undefined && { integrity },
    });
  }
  const epoch = Deno.env.get("SOURCE_DATE_EPOCH");
  const created = epoch === undefined ? new Date() : new Date(Number(epoch) * 1000);
  const text = renderSbom({ version, deno, created }, listed);
  await Deno.stdout.write(new TextEncoder().encode(text));
}
