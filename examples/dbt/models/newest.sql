-- The released table of the newest step that counts: the one that the catalogue lists, not the newest file.
-- (Read by the catalogue, a step that is being published, or was withdrawn, is not there.)
{{ config(materialized="table") }}

{% set releases = var("releases") %}
{% set steps %}
SELECT max(entry.step)
FROM (SELECT unnest(steps) AS entry FROM read_json('{{ releases }}/catalogue.json'))
WHERE entry.kept AND entry.state = 'full'
{% endset %}
{% set newest = (run_query(steps).columns[0].values()[0] if execute else 1) | int %}

SELECT {{ newest }} AS step, *
FROM read_parquet('{{ releases }}/step-{{ "%06d" | format(newest) }}/table.parquet')
