{{- /* The sections of all pages: page, heading, address, text. A script, not JSON, so that it loads from a folder, too. */ -}}
{{- $sections := slice -}}
{{- range slice . | append site.RegularPages }}
  {{- $page := strings.TrimPrefix "/" .RelPermalink }}{{ $name := partial "name.html" . }}
  {{- range $i, $part := split (replaceRE `<h[23] id=` "<h2 id=" .Content) "<h2 id=" }}
    {{- $at := $page }}{{ $heading := $name }}
    {{- if $i }}
      {{- $at = printf "%s#%s" $at (replaceRE `(?s)^"?([^"> ]+).*` "$1" $part) }}
      {{- $heading = replaceRE `(?s)^[^>]*>(.*?)<a class.*` "$1" $part | plainify | htmlUnescape | strings.TrimSpace }}
      {{- $part = replaceRE `(?s)^.*?</h[23]>` "" $part }}
    {{- end }}
    {{- $sections = $sections | append (dict "p" $name "h" $heading "a" $at "t" (replaceRE `\s+` " " (replaceRE `</t[dh]>` " " $part | plainify | htmlUnescape))) }}
  {{- end }}
{{- end -}}
window.sections = {{ $sections | jsonify }};
